"""Pieces to a batch: samples in (time, file, row) order, their extents, and the shard that takes what cannot stay."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fastpath import gather_into
from modyn_dagster.catalog.datasets import Column
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.formats.base import ByteArray, Int64Array
from modyn_dagster.ingestion.formats.parquet import encode_table
from modyn_dagster.ingestion.labels import ClassLabels
from modyn_dagster.ingestion.order import natural_key
from modyn_dagster.ingestion.piece import Piece, joined
from modyn_dagster.ingestion.times import TimeArray

#: A place in the order of the stream: time in microseconds since 1970, path, row.
Place = tuple[int, str, int]


@dataclass(frozen=True)
class Assembled:
    """n samples of a batch in key order.

    Attributes:
        times: ``datetime64[us][n]``, ascending.
        labels: classes, or None.
        targets: ``float64[n]``, or None.
        attributes: JSON texts (Arrow ``large_string``), or None.
        paths: of the files read in place, in natural order.
        file: index into ``paths``, ``int32[n]``; ``len(paths)`` is the shard.
        offsets, lengths: in that file, ``int64[n]`` each.
        shard: parts to be written one after the other; empty where everything is read in place.
    """

    times: TimeArray
    labels: ClassLabels | None
    targets: npt.NDArray[np.float64] | None
    attributes: pa.Array | None
    paths: tuple[str, ...]
    file: npt.NDArray[np.int32]
    offsets: Int64Array
    lengths: Int64Array
    shard: list[ByteArray]


def assemble(
    pieces: Sequence[Piece], columns: Sequence[Column], begin: Place | None = None, end: Place | None = None
) -> Assembled:
    """Put the samples of ``[begin, end)`` in order.

    Args:
        pieces: of one batch, in natural order of their files.
        columns: of the dataset, for converted rows.
        begin: first place that belongs to the batch; None for no bound.
        end: first place that no longer does.

    Raises:
        DataError: nothing lies between the bounds.
    """
    stacked = _Stacked(pieces)
    order = stacked.order(begin, end)
    if len(order) == 0:
        raise DataError(stacked.paths[0], "holds no sample of this slice any more")
    place = _place(stacked, order, columns)
    return Assembled(
        times=stacked.times[order],
        labels=_taken(joined([piece.labels for piece in pieces]), order),
        targets=_taken(joined([piece.targets for piece in pieces]), order),
        attributes=_taken(joined([piece.attributes for piece in pieces]), order),
        **place,
    )


class _Stacked:
    """The pieces one after the other: (file, row) order."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces
        self.paths = [path for piece in pieces for path in piece.paths]
        bases = np.cumsum([0, *(len(piece.paths) for piece in pieces)])
        self.path_of = np.concatenate([piece.path_of + base for piece, base in zip(pieces, bases)])
        self.rows = np.concatenate([piece.rows for piece in pieces])
        self.times = np.concatenate([piece.times for piece in pieces])
        self.in_place = np.concatenate([piece.in_place for piece in pieces])

    def order(self, begin: Place | None, end: Place | None) -> Int64Array:
        """Positions in key order: stable, so that equal times stay in (file, row) order."""
        order: Int64Array = np.argsort(self.times, kind="stable")
        inside = np.ones(len(order), dtype=bool)
        if begin is not None:
            inside &= ~self._before(begin)
        if end is not None:
            inside &= self._before(end)
        kept: Int64Array = order[inside[order]]
        return kept

    def _before(self, place: Place) -> npt.NDArray[np.bool_]:
        time, path, row = place
        earlier_paths = sum(natural_key(known) < natural_key(path) for known in self.paths)
        here = self.path_of == (earlier_paths if path in self.paths else -1)
        times = self.times.astype(np.int64)
        before = (times < time) | ((times == time) & ((self.path_of < earlier_paths) | (here & (self.rows < row))))
        return np.asarray(before, dtype=bool)


def _place(stacked: _Stacked, order: Int64Array, columns: Sequence[Column]) -> dict[str, Any]:
    in_place = stacked.in_place[order]
    used = np.unique(stacked.path_of[order][in_place])
    file = np.full(len(order), len(used), dtype=np.int32)
    file[in_place] = np.searchsorted(used, stacked.path_of[order][in_place])
    found: dict[str, Any] = {"paths": tuple(stacked.paths[path] for path in used), "file": file}
    if stacked.pieces[0].ranges is None:
        return found | _converted(stacked.pieces, order, columns)
    offsets = np.concatenate([piece.ranges.offsets for piece in stacked.pieces if piece.ranges is not None])[order]
    lengths = np.concatenate([piece.ranges.lengths for piece in stacked.pieces if piece.ranges is not None])[order]
    shard: list[ByteArray] = []
    if not in_place.all():
        packed = np.flatnonzero(~in_place)
        buffer, starts = _packed(stacked.pieces, order[packed], offsets[packed], lengths[packed])
        offsets[packed] = starts
        shard = [buffer]
    return found | {"offsets": offsets, "lengths": lengths, "shard": shard}


def _converted(pieces: Sequence[Piece], order: Int64Array, columns: Sequence[Column]) -> dict[str, Any]:
    content = pa.concat_tables([piece.payload for piece in pieces]).take(pa.array(order))
    parts, width = encode_table(columns, content)
    offsets = width * np.arange(len(order), dtype=np.int64)
    return {"offsets": offsets, "lengths": np.full(len(order), width, dtype=np.int64), "shard": parts}


def _packed(pieces: Sequence[Piece], order: Int64Array, offsets: Int64Array, lengths: Int64Array) -> tuple[ByteArray, Int64Array]:
    """Samples one after the other in key order, and where each begins."""
    ends = np.cumsum(lengths)
    starts = ends - lengths
    buffer = np.empty(int(ends[-1]), dtype=np.uint8)
    bounds = np.cumsum([0, *(len(piece) for piece in pieces)])
    piece_of = np.searchsorted(bounds, order, side="right") - 1
    for i, piece in enumerate(pieces):
        mine = np.flatnonzero(piece_of == i)
        if len(mine) and piece.payload is not None:
            gather_into(piece.payload, offsets[mine], lengths[mine], buffer, starts[mine])
    return buffer, starts


def _taken(values: Any, order: Int64Array) -> Any:
    if values is None:
        return None
    return values[order] if isinstance(values, np.ndarray) else values.take(pa.array(order))
