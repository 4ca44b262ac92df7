"""Byte representations of samples: stored bytes, text values, and rows of features as numbers."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from modyn_dagster.data.reader import SampleReader
from modyn_dagster.data.rows.layouts import Arrays
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.learning.features import ColumnList
from modyn_dagster.spec.pipeline import PipelineSpec

#: Stored bytes (a row of text, a record, a file), a value of a text column, and features as little-endian numbers in a row.
Kind = Literal["stored", "text", "float32", "float64"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_FLOATS: Final[Mapping[Kind, str]] = {"float32": "<f4", "float64": "<f8"}

#: Columns of one row of features, in their order.
FeatureSet = tuple[str, ...]


def feature_sets(spec: DatasetSpec, columns: Sequence[str], pipelines: Sequence[PipelineSpec]) -> list[FeatureSet]:
    """Sets of columns that stand side by side in training: of each pipeline, and all columns with and without time and label.

    Args:
        spec: of the dataset.
        columns: names of its numeric columns.
        pipelines: those that train on it.
    """
    others = _time_and_label(spec) | set(spec.attributes)
    sets: dict[FeatureSet, None] = {tuple(columns): None, tuple(name for name in columns if name not in others): None}
    for pipeline in pipelines:
        features = pipeline.training.features
        listed = [group.columns for group in features.values()] if isinstance(features, Mapping) else [features]
        sets |= {tuple(_names(each, columns, others)): None for each in listed if not isinstance(each, str)}
    return [names for names in sets if names and set(names) <= set(columns)]


def _names(listed: ColumnList, columns: Sequence[str], others: Collection[str]) -> Iterator[str]:
    """Names in a list of features; of a selector by pattern, those of the numeric columns."""
    for column in listed:
        if isinstance(column, str):
            yield column
        else:
            yield from (name for name in columns if name not in others and fnmatchcase(name, column.pattern or "*"))


def representations(
    reader: SampleReader, keys: KeyArray, spec: DatasetSpec, pipelines: Sequence[PipelineSpec]
) -> Iterator[tuple[int, Kind, bytes]]:
    """Yield the representations of samples: position in ``keys`` (``uint64[n]``), kind and bytes.

    Raises ``CorruptFile`` and ``UnknownKey``.
    """
    samples = reader.read(keys)
    stored = samples.blobs if samples.blobs is not None else reader.read_blobs(keys)
    yield from ((i, "stored", content) for i, content in enumerate(stored))
    # Times stay, and a class is no property of one sample: both stand in many files.
    for name in samples.columns.keys() - _time_and_label(spec):
        if (values := samples.columns[name]).dtype.kind in "OSU":
            yield from ((i, "text", _encoded(value)) for i, value in enumerate(values.tolist()))
    numbers = {name: values for name, values in samples.columns.items() if values.dtype.kind in "biuf"}
    for names in feature_sets(spec, list(numbers), pipelines):
        for kind, dtype in _FLOATS.items():
            rows = _rows(numbers, names, len(keys), dtype)
            yield from ((i, kind, row.tobytes()) for i, row in enumerate(rows))


def _time_and_label(spec: DatasetSpec) -> set[str]:
    return {each.column for each in (spec.time, spec.label and spec.label.from_) if each and each.source == "column"}


def _rows(columns: Arrays, names: FeatureSet, n: int, dtype: str) -> npt.NDArray[Any]:
    """Rows of features: ``[n, number of values]``."""
    return np.concatenate([columns[name].reshape(n, -1) for name in names], axis=1, dtype=np.dtype(dtype), casting="unsafe")


def _encoded(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
