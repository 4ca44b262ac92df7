"""Samples of one file of rows, or of all small files of a batch, before they are put in order."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from modyn_dagster.ingestion.formats.base import ByteArray, Int64Array, Ranges
from modyn_dagster.ingestion.labels import ClassLabels
from modyn_dagster.ingestion.small_files import SmallFiles
from modyn_dagster.ingestion.times import TimeArray


@dataclass(frozen=True)
class Piece:
    """n samples in (file, row) order: rows of one file, or one sample from each of n files.

    Attributes:
        paths: files they come from, in natural order.
        times: ``datetime64[us][n]``.
        labels: classes, or None.
        targets: ``float64[n]``, or None.
        attributes: JSON texts (Arrow ``large_string``), or None.
        in_place: ``bool[n]``: read from the source file; the others are copied to the batch's shard.
        ranges: where the bytes lie, in the source file or in ``payload``; None where ``payload`` is a table.
        payload: what goes to the shard: bytes, the rows of a converted table, or files that are read when it is written.
    """

    paths: tuple[str, ...]
    times: TimeArray
    labels: ClassLabels | None
    targets: npt.NDArray[np.float64] | None
    attributes: pa.Array | None
    in_place: npt.NDArray[np.bool_]
    ranges: Ranges | None
    payload: ByteArray | pa.Table | SmallFiles | None

    def __len__(self) -> int:
        return len(self.times)

    @property
    def path_of(self) -> Int64Array:
        """Index into ``paths``, ``int64[n]``, ascending."""
        return np.arange(len(self)) if len(self.paths) > 1 else np.zeros(len(self), dtype=np.int64)

    @property
    def rows(self) -> Int64Array:
        """Row in its file from 0, ``int64[n]``."""
        return np.zeros(len(self), dtype=np.int64) if len(self.paths) > 1 else np.arange(len(self))


def joined(parts: list[Any]) -> Any:
    """Columns of several pieces one after the other; None where the dataset has no such column."""
    if parts[0] is None or len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else pa.concat_arrays(parts)
