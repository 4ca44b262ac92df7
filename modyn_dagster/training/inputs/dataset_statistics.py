"""Statistics of a training set from one pass before the loop: moments, number of classes, and a copy if it is small."""

from dataclasses import dataclass, replace
from typing import Final

import torch

from modyn_dagster.data.samples import Samples
from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.tasks.objectives import TokenTagsSpec
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.data import PreviousModel, Task, TrainingData
from modyn_dagster.training.inputs.features import Features
from modyn_dagster.training.inputs.fitted import fitted_features
from modyn_dagster.training.inputs.reading import EpochOrder, LoadedBatch, Reading, place_finder
from modyn_dagster.training.memory import Arrays, empty_aligned
from modyn_dagster.training.models.layout import Layout
from modyn_dagster.training.models.standardization import Moments, Preparation, Scaling
from modyn_dagster.training.parsing.parser import Parsing
from modyn_dagster.training.transforms.chain import Transforms
from modyn_dagster.training.transforms.labels import Relabeling

#: Limits of a read: samples, and approximate bytes. Moments are merged chunk by chunk, so these constants decide bits and
#: are not settings.
CHUNK: Final = 8192
CHUNK_BYTES: Final = 64 << 20
#: Number of samples that determine the columns.
EXAMPLE: Final = 64


@dataclass(frozen=True, slots=True)
class DatasetStatistics:
    """Statistics of a training set that one pass over it computes.

    Attributes:
        reading: reading of samples as the model's inputs.
        seen: layout of what the model sees of these inputs, after the transforms.
        moments: moments of the standardised inputs, by name.
        n_classes_seen: one more than the largest class; 0 if the spec knows the classes.
        cached: the whole set in order, chunk by chunk; None for a set larger than the fast path's ``cache_bytes``.
    """

    reading: Reading
    seen: Layout
    moments: dict[str, Moments]
    n_classes_seen: int
    cached: list[LoadedBatch] | None


def measure_dataset(
    spec: TrainingSpec,
    data: TrainingData,
    task: Task,
    parsing: Parsing,
    relabeling: Relabeling | None = None,
    previous: PreviousModel | None = None,
) -> DatasetStatistics:
    """Read the training set once, or only its first samples if no statistic needs all; twice where encoders are fitted."""
    example = data.reader.read(data.chosen.slice(0, min(EXAMPLE, len(data))).keys)
    relabeling = relabeling or Relabeling(None, task.kind, parsing.source)
    transforms = Transforms(spec, parsing.source, place_finder(data.reader))
    unfitted = Features.of(spec, example, parsing, exclude=task.exclude)
    reading = Reading(data, unfitted, relabeling, transforms, parsing.source)
    if unfitted.layout.encodings:
        reading = replace(reading, features=fitted_features(spec, reading, example, chunk_of(example, {}), previous))
    features = reading.features
    inputs = features(example)
    size = sum(array.nbytes for array in inputs.values()) / len(example) * len(data)
    moments = {
        each.name: Moments(each.n_features, each.unscaled) for each in features.layout.inputs if each.tabular and spec.standardize
    }
    cached: list[LoadedBatch] | None = [] if size <= data.fast_path.cache_bytes else None
    count_classes = task.kind == "class" and task.n_classes is None
    if not moments and cached is None and not count_classes:
        return DatasetStatistics(reading, _seen(reading, spec, {}, example, inputs), {}, 0, None)
    n_classes_seen = 0
    for chunk in reading(EpochOrder(chunk_of(example, inputs)), lambda loaded: loaded):
        _update(moments, chunk.inputs)
        if count_classes:
            n_classes_seen = max(n_classes_seen, int(chunk.truth.max()) + 1)
        if cached is not None:
            cached.append(_own_copy(chunk))
    return DatasetStatistics(reading, _seen(reading, spec, moments, example, inputs), moments, n_classes_seen, cached)


def chunk_of(example: Samples, inputs: Arrays) -> int:
    """Samples per read, by the larger of a sample's raw bytes and its inputs; ``inputs`` belong to the example."""
    made = sum(array.nbytes for array in inputs.values()) // len(example)
    columns = sum(column.nbytes for column in example.columns.values()) // len(example)
    raw = max(map(len, example.blobs)) if example.blobs is not None else 0
    return max(1, min(CHUNK, CHUNK_BYTES // max(1, made, columns, raw)))


def _seen(reading: Reading, spec: TrainingSpec, moments: dict[str, Moments], example: Samples, inputs: Arrays) -> Layout:
    """Derive the layout after the transforms of evaluation by applying them to the example, whose arrays it overwrites."""
    layout, transforms = reading.features.layout, reading.transforms
    if isinstance(spec.loss, TokenTagsSpec):
        return _without_tags(layout, reading.source)
    if not transforms:
        return layout
    scalings = {name: Scaling(*each.scaling()) for name, each in moments.items()}
    prepare = Preparation(layout, scalings, double=spec.precision == "64-true", allocate=empty_aligned)
    prepared = {name: torch.from_numpy(array) for name, array in prepare(inputs).items()}
    transforms.require_quiet(prepared, example.keys)
    shown = transforms.evaluation()(prepared, example.keys)
    return layout.shaped({name: tuple(tensor.shape[1:]) for name, tensor in shown.items()})


def _without_tags(layout: Layout, source: str) -> Layout:
    """Layout of tokens alone, ``[length]``, of ``[2, length]`` with tags."""
    entry = layout.inputs[0]
    if len(entry.shape) != 2 or entry.shape[0] != 2:
        rule = f"needs whole numbers [2, length] per sample, tokens and their tags, not {list(entry.shape)}"
        raise ConfigError(
            source, "training.parser", "(on)", f"{rule}: use the parser `tokenizer` with `tags`, or one of your own"
        )
    return layout.shaped({entry.name: entry.shape[1:]})


def _own_copy(chunk: LoadedBatch) -> LoadedBatch:
    # The arrays are views of the read buffer, which need not stay in memory.
    return replace(chunk, keys=chunk.keys.copy(), weights=chunk.weights.copy(), truth=chunk.truth.copy())


def _update(moments: dict[str, Moments], inputs: Arrays) -> None:
    for name, each in moments.items():
        each.update(inputs[name])
