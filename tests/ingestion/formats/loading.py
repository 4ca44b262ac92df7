"""Bytes as a loaded file, and back: what a reader would do with ranges of it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastpath import gather_into
from fastpath.array_types import ByteArray, Int64Array
from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.rows.row_decoding import RowDecoder
from modyn_dagster.ingestion.formats.base import OpenRows, RowFormat
from modyn_dagster.ingestion.sources.files import FileState, LoadedFile


def loaded(data: bytes, path: str = "f.csv") -> LoadedFile:
    return LoadedFile(path, np.frombuffer(data, dtype=np.uint8), FileState(len(data), 0))


def columns(**dtypes: str) -> list[Column]:
    return [Column(name, dtype) for name, dtype in dtypes.items()]


def converted(format: RowFormat, data: bytes, settled: Sequence[Column] | None = None) -> dict[str, list[Any]]:
    """All cells, by the columns given or those that the file shows."""
    opened = format.open(loaded(data))
    chosen = settled if settled is not None else [found.resolved() for found in opened.find_columns()]
    return {name: values.to_pylist() for name, values in opened.convert(chosen, [column.name for column in chosen]).items()}


def reread(
    decoder: RowDecoder, data: bytes, opened: OpenRows, settled: Sequence[Column], rows: Sequence[int]
) -> dict[str, list[Any]]:
    """The cells of some rows, gathered and parsed as a reader does it."""
    source = np.frombuffer(data, dtype=np.uint8)
    assert opened.ranges is not None
    offsets, lengths = opened.ranges.offsets[list(rows)], opened.ranges.lengths[list(rows)]
    bounds = np.concatenate(([0], np.cumsum(lengths + len(decoder.separator)))).astype(np.int64)
    buffer = np.full(int(bounds[-1]), ord("\n"), dtype=np.uint8)
    gather_into(source, offsets, lengths, buffer, bounds[:-1])
    return {name: values.tolist() for name, values in decoder.decode(settled, buffer, bounds, never).items()}


def never(offsets: Int64Array, lengths: Int64Array) -> tuple[ByteArray, Int64Array]:
    raise AssertionError("only Parquet fetches more than its rows")
