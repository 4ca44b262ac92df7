"""One pass over a training set before the loop: standardisation, number of classes, and a copy if it is small."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy.typing as npt

from modyn_dagster.ingestion.samples import Samples
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.training import TaskKind, TrainingSpec
from modyn_dagster.training.data import Task, TrainingData
from modyn_dagster.training.features import Features
from modyn_dagster.training.standardize import Moments
from modyn_dagster.training.targets import Truth, truth_of

#: Samples per read. Part of the result: the moments of a training set are merged chunk by chunk.
CHUNK: Final = 8192
#: Features of a training set up to this size stay in memory between epochs.
CACHE_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class Loaded:
    """Samples as training needs them: ``uint64[n]`` keys, features as ``Features`` lays them out, and the truth."""

    keys: KeyArray
    features: npt.NDArray[Any]
    truth: Truth


@dataclass(frozen=True, slots=True)
class Loader:
    """Reads keys into ``Loaded``."""

    data: TrainingData
    features: Features
    kind: TaskKind
    source: str

    def __call__(self, keys: KeyArray) -> Loaded:
        """These samples, in this order."""
        return self.of(self.data.read(keys))

    def of(self, samples: Samples) -> Loaded:
        """Samples that were read already."""
        return Loaded(samples.keys, self.features(samples), truth_of(samples, self.kind, source=self.source))


@dataclass(frozen=True, slots=True)
class Survey:
    """What the pass found.

    Attributes:
        loader: how samples become the model's input.
        moments: of the tabular features; None where nothing is standardised.
        n_seen: one more than the largest class; 0 where nobody asked.
        cached: the whole set in its order, chunk by chunk; None when it is larger than ``CACHE_BYTES``.
    """

    loader: Loader
    moments: Moments | None
    n_seen: int
    cached: list[Loaded] | None


def survey(spec: TrainingSpec, data: TrainingData, task: Task, *, source: str) -> Survey:
    """Read the training set once; only its first chunk where nothing has to be known about all of it."""
    example = data.read(data.keys[:CHUNK])
    features = Features.of(spec, example, exclude=task.exclude, source=source)
    loader = Loader(data, features, task.kind, source)
    first = loader.of(example)
    moments = Moments(features.layout.n_features) if features.layout.tabular and spec.standardize else None
    cached: list[Loaded] | None = [] if first.features.nbytes / len(example) * len(data) <= CACHE_BYTES else None
    count_classes = task.kind == "class" and task.n_classes is None
    if moments is None and cached is None and not count_classes:
        return Survey(loader, None, 0, None)
    n_seen = 0
    for chunk in _chunks(first, loader):
        if moments is not None:
            moments.update(chunk.features)
        if count_classes:
            n_seen = max(n_seen, int(chunk.truth.max()) + 1)
        if cached is not None:
            cached.append(chunk)
    return Survey(loader, moments, n_seen, cached)


def _chunks(first: Loaded, loader: Loader) -> Iterator[Loaded]:
    yield first
    keys = loader.data.keys
    for start in range(CHUNK, len(keys), CHUNK):
        yield loader(keys[start : start + CHUNK])
