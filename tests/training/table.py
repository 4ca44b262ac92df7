"""Samples in memory, read by key as the platform's readers do."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpath import TrainingSet
from modyn_dagster.data.samples import Samples
from modyn_dagster.keys import KeyArray, keys_of
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import FastPath, TrainingData

FASTEST = FastPath()


@dataclass
class Table:
    """Samples in memory, read by key; ``reads`` holds the size of every read."""

    columns: Mapping[str, npt.NDArray[Any]]
    labels: npt.NDArray[np.int64] | None = None
    targets: npt.NDArray[np.float64] | None = None
    blobs: Sequence[bytes] | None = None

    reads: list[int] = field(default_factory=list)

    @property
    def n(self) -> int:
        parts = (*self.columns.values(), self.labels, self.targets, self.blobs)
        return next(len(part) for part in parts if part is not None)

    @property
    def keys(self) -> KeyArray:
        return keys_of(3, np.arange(self.n))

    def read(self, keys: KeyArray) -> Samples:
        at = (keys - self.keys[0]).astype(np.int64)
        self.reads.append(len(at))
        return Samples(
            keys=keys,
            times=np.zeros(len(at), dtype="datetime64[us]"),
            labels=None if self.labels is None else self.labels[at],
            targets=None if self.targets is None else self.targets[at],
            columns={name: column[at] for name, column in self.columns.items()},
            blobs=None if self.blobs is None else [self.blobs[i] for i in at],
        )

    @property
    def samples(self) -> Samples:
        return self.read(self.keys)

    def data(self, weights: npt.ArrayLike | None = None, fast_path: FastPath = FASTEST) -> TrainingData:
        given = np.ones(self.n) if weights is None else weights
        return TrainingData(TrainingSet.of(self.keys, np.asarray(given, dtype=np.float32)), self, fast_path)


MakeTable = Callable[..., Table]


def spec_of(**fields: object) -> TrainingSpec:
    """A training of a logistic regression, but for the given fields."""
    return TrainingSpec.model_validate({"model": {"name": "logistic_regression"}} | fields)
