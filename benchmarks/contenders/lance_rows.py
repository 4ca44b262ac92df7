"""Lance: ``LanceDataset.take`` of rows kept as one fixed-size binary column, faster than 40 columns."""

from collections.abc import Sequence
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from torch import Tensor

from benchmarks.contenders.library import Library, Positions, Take, arrays_of
from benchmarks.rows import ROW, batch_of, words_of

_TYPE = pa.binary(ROW.itemsize)


def write(paths: Sequence[Path], folder: Path) -> None:
    """One dataset with one column."""

    def batches() -> list[pa.RecordBatch]:
        buffers = [(pa.py_buffer(rows.tobytes()), len(rows)) for rows in arrays_of(paths)]
        arrays = [pa.FixedSizeBinaryArray.from_buffers(_TYPE, n, [None, buffer]) for buffer, n in buffers]
        return [pa.record_batch([array], names=["row"]) for array in arrays]

    lance.write_dataset(pa.Table.from_batches(batches()), folder / "rows.lance")


def open_rows(folder: Path) -> Take:
    """Takes the rows of a batch by one call."""
    dataset = lance.dataset(folder / "rows.lance")

    def take(positions: Positions) -> dict[str, Tensor]:
        column = dataset.take(positions, columns=["row"])["row"].combine_chunks()
        chunk = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        data = np.frombuffer(chunk.buffers()[1], np.uint8)
        start = chunk.offset * ROW.itemsize
        return batch_of(words_of(data[start : start + len(chunk) * ROW.itemsize]))

    return take


LIBRARY = Library("pylance", write, open_rows)
