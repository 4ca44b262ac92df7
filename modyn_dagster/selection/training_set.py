"""The training set on disk: an Arrow file of keys and weights, in the format of ``fastpath``."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
import numpy.typing as npt

import fastpath
from fastpath import Partition, TrainingSetWriter
from modyn_dagster.keys import KeyArray
from modyn_dagster.selection.partitions import inclusion_probabilities_of
from modyn_dagster.storage import StagedFile, atomic_file, storage_errors


@dataclass(frozen=True, slots=True)
class WrittenTrainingSet:
    """Written training set: number of samples and the file's checksum."""

    n_samples: int
    checksum: str


def write_training_set(path: Path, partitions: Iterable[Partition]) -> WrittenTrainingSet:
    """Write partitions as they come; equal content gives equal bytes. The file appears as a whole or not at all."""
    with atomic_file(path) as file:
        return _write(file, partitions)


def stage_training_set(staged: StagedFile, partitions: Iterable[Partition]) -> WrittenTrainingSet:
    """The same with a file that gets its name later."""
    with staged.as_file() as file:
        return _write(file, partitions)


class TrainingSet(fastpath.TrainingSet):
    """``fastpath.TrainingSet`` with the errors of this package."""

    @classmethod
    def open(cls, path: Path | str, checksum: str | None = None) -> Self:
        """Map a file; ``CorruptFile`` when it is none or has another checksum. Partitions are verified when they are touched."""
        with storage_errors():
            return super().open(path, checksum)

    def chances(self, i: int) -> npt.NDArray[np.float32] | None:
        """With which chance each sample of a partition was chosen; None where the set does not say. Raises ``CorruptFile``."""
        with storage_errors():
            return super().chances(i)

    def touch(self, partitions: Iterable[int]) -> None:
        """Verify partitions that were not yet. Raises ``CorruptFile``, naming the first that is damaged."""
        with storage_errors():
            super().touch(partitions)

    def take_into(self, positions: npt.NDArray[np.int64], keys: KeyArray, weights: npt.NDArray[np.float32]) -> None:
        """Keys and weights at ``positions``. Raises ``CorruptFile`` when they lie in damaged partitions."""
        with storage_errors():
            super().take_into(positions, keys, weights)


def _write(file: BinaryIO, partitions: Iterable[Partition]) -> WrittenTrainingSet:
    following = iter(partitions)
    first = next(following, None)
    has_chances = first is not None and inclusion_probabilities_of(first) is not None
    with TrainingSetWriter(file, chances=has_chances) as writer:
        for partition in chain([] if first is None else [first], following):
            writer.write(partition.keys, partition.weights, inclusion_probabilities_of(partition))
    return WrittenTrainingSet(writer.n_samples, writer.checksum)
