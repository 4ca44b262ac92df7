"""Samples of one file of rows, or of all small files of a batch, before they are put in order."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from modyn_dagster.ingestion.formats.base import ByteArray, Int64Array, Ranges
from modyn_dagster.ingestion.labels import ClassLabels
from modyn_dagster.ingestion.times import TimeArray


@dataclass(frozen=True)
class Piece:
    """n samples in (file, row) order.

    Attributes:
        paths: files they come from, in natural order.
        path_of: index into ``paths``, ``int64[n]``, ascending.
        rows: row in its file from 0, ``int64[n]``.
        times: ``datetime64[us][n]``.
        labels: classes, or None.
        targets: ``float64[n]``, or None.
        attributes: JSON texts (Arrow ``large_string``), or None.
        in_place: ``bool[n]``: read from the source file; the others are copied to the batch's shard.
        ranges: where the bytes lie, in the source file or in ``payload``; None where ``payload`` is a table.
        payload: what goes to the shard: bytes, or the rows of a converted table.
    """

    paths: tuple[str, ...]
    path_of: Int64Array
    rows: Int64Array
    times: TimeArray
    labels: ClassLabels | None
    targets: npt.NDArray[np.float64] | None
    attributes: pa.Array | None
    in_place: npt.NDArray[np.bool_]
    ranges: Ranges | None
    payload: ByteArray | pa.Table | None

    def __len__(self) -> int:
        return len(self.times)


def joined(parts: list[Any]) -> Any:
    """Columns of several pieces one after the other; None where the dataset has no such column."""
    if parts[0] is None:
        return None
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else pa.concat_arrays(parts)
