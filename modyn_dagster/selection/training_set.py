"""The training set on disk: an Arrow file of keys and weights, in the format of ``fastpath``."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from fastpath import Partition, TrainingSet, TrainingSetWriter
from modyn_dagster.selection.partitions import inclusion_probabilities_of
from modyn_dagster.storage import StagedFile, atomic_file

__all__ = ["TrainingSet", "WrittenTrainingSet", "stage_training_set", "write_training_set"]


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


def _write(file: BinaryIO, partitions: Iterable[Partition]) -> WrittenTrainingSet:
    following = iter(partitions)
    first = next(following, None)
    has_chances = first is not None and inclusion_probabilities_of(first) is not None
    with TrainingSetWriter(file, chances=has_chances) as writer:
        for partition in chain([] if first is None else [first], following):
            writer.write(partition.keys, partition.weights, inclusion_probabilities_of(partition))
    return WrittenTrainingSet(writer.n_samples, writer.checksum)
