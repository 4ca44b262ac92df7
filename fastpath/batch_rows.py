"""A batch's row in the table that kernels read."""

from typing import Final

import numpy as np
import numpy.typing as npt

from fastpath._batches import BATCH_FIELDS, MODES
from fastpath.extents import Int64Array
from fastpath.index import BatchIndex, private_copy

_WORD: Final = 64


def batch_row(
    index: BatchIndex, deleted: npt.NDArray[np.uint32], index_file: int, first_file: int
) -> tuple[int, Int64Array, list[object]]:
    """``(mode, the fields behind the mode, arrays to keep as long as the row points to them)``.

    Args:
        index: of the batch.
        deleted: positions, ascending and below ``index.n``.
        index_file: id of the index among the files.
        first_file: id of the batch's first file.
    """
    extents = index.extents
    # Bounds are private, as is an only extent: they must hold whatever somebody writes over the mapped index.
    sizes = index.sizes
    kept: list[object] = [sizes]
    row = {"n": index.n, "index_file": index_file, "first_file": first_file, "n_files": len(sizes), "size": _address(sizes)}
    row |= {"length": -1 if index.width is None else index.width, "n_runs": len(extents.file), "time": _address(index.times)}
    labels = index.labels if index.labels is not None else index.targets
    row["label"] = 0 if labels is None else _address(labels)
    if len(deleted):
        bits = _bitmap(deleted, index.n)
        kept.append(bits)
        row["deleted"] = _address(bits)
    if len(extents.file) == 1:
        stride = 0 if extents.stride is None else int(extents.stride[0])
        row |= {"file": first_file + int(extents.file[0]), "offset": int(extents.offset[0]), "stride": stride}
        return MODES["one_run"], _words(row), kept
    row |= {"run_file": _address(extents.file), "run_offset": _address(extents.offset), "run_length": _address(extents.length)}
    if index.n == 0 or extents.start is None or extents.stride is None:
        return MODES["rows"], _words(row), kept
    directory, shift = _directory(private_copy(index.path, extents.start), index.n)
    kept.append(directory)
    row |= {"run_start": _address(extents.start), "run_stride": _address(extents.stride)}
    row |= {"directory": _address(directory), "shift": shift}
    return MODES["runs"], _words(row), kept


def _directory(start: Int64Array, n: int) -> tuple[npt.NDArray[np.uint32], int]:
    """The run in which every 2**shift-th sample lies, and the last run; about as many entries as there are runs."""
    runs = len(start)
    shift = max(0, (n // runs).bit_length() - 1)
    first = np.arange(((n - 1) >> shift) + 1, dtype=np.int64) << shift
    # Starts may have been written over since they were found to ascend.
    found = np.clip(np.searchsorted(start, first, side="right") - 1, 0, runs - 1)
    return np.append(found, runs - 1).astype(np.uint32), shift


def _bitmap(positions: npt.NDArray[np.uint32], n: int) -> npt.NDArray[np.uint64]:
    bits = np.zeros((n + _WORD - 1) // _WORD, dtype=np.uint64)
    wide = positions.astype(np.uint64)
    np.bitwise_or.at(bits, (wide // np.uint64(_WORD)).astype(np.int64), np.uint64(1) << (wide % np.uint64(_WORD)))
    return bits


def _address(values: npt.NDArray[np.generic]) -> int:
    address: int = values.__array_interface__["data"][0]
    return address


def _words(row: dict[str, int]) -> Int64Array:
    return np.array([row.get(name, 0) for name in BATCH_FIELDS[1:]], dtype=np.int64)
