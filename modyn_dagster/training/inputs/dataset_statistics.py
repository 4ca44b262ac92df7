"""One pass over a training set before the loop: standardisation, number of classes, and a copy if it is small."""

from dataclasses import dataclass, replace
from typing import Final

import torch

from modyn_dagster.data.samples import Samples
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.data import Task, TrainingData
from modyn_dagster.training.inputs.features import Features
from modyn_dagster.training.inputs.reading import Loaded, Reading, Walk, place_finder
from modyn_dagster.training.memory import Arrays, empty_aligned
from modyn_dagster.training.models.layout import Layout
from modyn_dagster.training.models.standardization import Moments, Preparation, Scaling
from modyn_dagster.training.parsing.parser import Parsing
from modyn_dagster.training.transforms.chain import Transforms
from modyn_dagster.training.transforms.labels import Relabeling

#: Samples per read, and about how many bytes of them at most. Part of the result: the moments of a training set are merged
#: chunk by chunk. So it is neither a setting nor a matter of the machine.
CHUNK: Final = 8192
CHUNK_BYTES: Final = 64 << 20
#: Samples that show what columns there are.
EXAMPLE: Final = 64


@dataclass(frozen=True, slots=True)
class DatasetStatistics:
    """Statistics of a training set that one pass over it computes.

    Attributes:
        reading: how samples become the model's inputs.
        seen: these inputs as its body gets them.
        moments: of the standardised inputs, by name.
        n_seen: one more than the largest class; 0 where nobody asked.
        cached: the whole set in its order, chunk by chunk; None when it is larger than the fast path's ``cache_bytes``.
    """

    reading: Reading
    seen: Layout
    moments: dict[str, Moments]
    n_seen: int
    cached: list[Loaded] | None


def survey(
    spec: TrainingSpec, data: TrainingData, task: Task, parsing: Parsing, relabeling: Relabeling | None = None
) -> DatasetStatistics:
    """Read the training set once; only its first samples where nothing has to be known about all of it."""
    example = data.reader.read(data.chosen.slice(0, min(EXAMPLE, len(data))).keys)
    features = Features.of(spec, example, parsing, exclude=task.exclude)
    inputs = features(example)
    size = sum(array.nbytes for array in inputs.values()) / len(example) * len(data)
    relabeling = relabeling or Relabeling(None, task.kind, parsing.source)
    transforms = Transforms(spec, parsing.source, place_finder(data.reader))
    reading = Reading(data, features, relabeling, transforms, parsing.source)
    moments = {each.name: Moments(each.n_features) for each in features.layout.inputs if each.tabular and spec.standardize}
    cached: list[Loaded] | None = [] if size <= data.fast_path.cache_bytes else None
    count_classes = task.kind == "class" and task.n_classes is None
    if not moments and cached is None and not count_classes:
        return DatasetStatistics(reading, _seen(reading, spec, {}, example, inputs), {}, 0, None)
    n_seen = 0
    for chunk in reading(Walk(chunk_of(example, inputs)), lambda loaded: loaded):
        _update(moments, chunk.inputs)
        if count_classes:
            n_seen = max(n_seen, int(chunk.truth.max()) + 1)
        if cached is not None:
            cached.append(_kept(chunk))
    return DatasetStatistics(reading, _seen(reading, spec, moments, example, inputs), moments, n_seen, cached)


def chunk_of(example: Samples, inputs: Arrays) -> int:
    """Samples per read, by the larger of what is read of a sample and what is made of it; ``inputs`` are the example's."""
    made = sum(array.nbytes for array in inputs.values()) // len(example)
    columns = sum(column.nbytes for column in example.columns.values()) // len(example)
    raw = max(map(len, example.blobs)) if example.blobs is not None else 0
    return max(1, min(CHUNK, CHUNK_BYTES // max(1, made, columns, raw)))


def _seen(reading: Reading, spec: TrainingSpec, moments: dict[str, Moments], example: Samples, inputs: Arrays) -> Layout:
    """The layout after the transforms of evaluation, tried on the example, whose arrays it takes over."""
    layout, transforms = reading.features.layout, reading.transforms
    if not transforms:
        return layout
    scalings = {name: Scaling(*each.scaling()) for name, each in moments.items()}
    prepare = Preparation(layout, scalings, double=spec.precision == "64-true", allocate=empty_aligned)
    prepared = {name: torch.from_numpy(array) for name, array in prepare(inputs).items()}
    transforms.require_quiet(prepared, example.keys)
    shown = transforms.evaluation()(prepared, example.keys)
    return layout.shaped({name: tuple(tensor.shape[1:]) for name, tensor in shown.items()})


def _kept(chunk: Loaded) -> Loaded:
    # These are views of the buffer that the samples' bytes were read into, which nobody needs any more.
    return replace(chunk, keys=chunk.keys.copy(), weights=chunk.weights.copy(), truth=chunk.truth.copy())


def _update(moments: dict[str, Moments], inputs: Arrays) -> None:
    for name, each in moments.items():
        each.update(inputs[name])
