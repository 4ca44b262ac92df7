"""Assembly of a batch from pieces: samples in (time, file, row) order, their extents, and the parts of the shard."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fastpath import gather_into
from fastpath.array_types import ByteArray, Int64Array, TimeArray
from modyn_dagster.catalog.datasets import Column
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.batches.piece import Piece, SmallFiles, concatenate
from modyn_dagster.ingestion.batches.placed_ids import PlacedIds
from modyn_dagster.ingestion.formats.labels import ClassLabels
from modyn_dagster.ingestion.formats.parquet import encode_table
from modyn_dagster.ingestion.sources.files import natural_key

#: Position in the order of the stream: time in microseconds since 1970, path, row.
StreamPosition = tuple[int, str, int]
#: Bytes of a shard that are gathered at a time.
_PART: Final = 16 << 20


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
        shard: parts to write one after the other, computed on demand; None where everything is read in place.
        ids: of the samples; None where the dataset has none.
    """

    times: TimeArray
    labels: ClassLabels | None
    targets: npt.NDArray[np.float64] | None
    attributes: pa.Array | None
    paths: tuple[str, ...]
    file: npt.NDArray[np.int32]
    offsets: Int64Array
    lengths: Int64Array
    shard: Iterable[ByteArray] | None
    ids: PlacedIds | None = None


def assemble(
    pieces: Sequence[Piece], columns: Sequence[Column], begin: StreamPosition | None = None, end: StreamPosition | None = None
) -> Assembled:
    """Sort the samples of ``[begin, end)``.

    Args:
        pieces: of one batch, in natural order of their files.
        columns: of the dataset, for converted rows.
        begin: first position of the batch; None for no bound.
        end: first position after the batch.

    Raises:
        DataError: nothing lies between the bounds.
    """
    stacked = _Stacked(pieces)
    order = stacked.order(begin, end)
    if order is not None and len(order) == 0:
        raise DataError(stacked.paths[0], "no longer holds a sample of this slice")
    return Assembled(
        times=_take(stacked.times, order),
        labels=_take(concatenate([piece.labels for piece in pieces]), order),
        targets=_take(concatenate([piece.targets for piece in pieces]), order),
        attributes=_take(concatenate([piece.attributes for piece in pieces]), order),
        ids=_ids(stacked, order),
        **_files(stacked, order),
        **_bytes(stacked, order, columns),
    )


class _Stacked:
    """The pieces one after the other, in (file, row) order."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces
        self.paths = [path for piece in pieces for path in piece.paths]
        self.times: TimeArray = concatenate([piece.times for piece in pieces])
        self.in_place: npt.NDArray[np.bool_] = concatenate([piece.in_place for piece in pieces])

    @cached_property
    def path_of(self) -> Int64Array:
        bases = np.cumsum([0, *(len(piece.paths) for piece in self.pieces)])
        return np.concatenate([piece.path_of + base for piece, base in zip(self.pieces, bases)])

    def order(self, begin: StreamPosition | None, end: StreamPosition | None) -> Int64Array | None:
        """Positions in key order, equal times in (file, row) order; None if all samples are in this order already."""
        times = self.times.view(np.int64)
        ascending = bool((times[1:] >= times[:-1]).all())
        if begin is None and end is None:
            return None if ascending else np.argsort(times, kind="stable")
        order: Int64Array = np.arange(len(times)) if ascending else np.argsort(times, kind="stable")
        inside = np.ones(len(times), dtype=bool)
        if begin is not None:
            inside &= ~self._before(begin)
        if end is not None:
            inside &= self._before(end)
        kept: Int64Array = order[inside[order]]
        return kept

    def _before(self, position: StreamPosition) -> npt.NDArray[np.bool_]:
        time, path, row = position
        rows = np.concatenate([piece.rows for piece in self.pieces])
        earlier_paths = sum(natural_key(other) < natural_key(path) for other in self.paths)
        same_path = self.path_of == (earlier_paths if path in self.paths else -1)
        times = self.times.view(np.int64)
        before = (times < time) | ((times == time) & ((self.path_of < earlier_paths) | (same_path & (rows < row))))
        return np.asarray(before, dtype=bool)


def _ids(stacked: _Stacked, order: Int64Array | None) -> PlacedIds | None:
    ids = concatenate([piece.ids for piece in stacked.pieces])
    if ids is None:
        return None
    rows = np.concatenate([piece.rows for piece in stacked.pieces])
    return PlacedIds(_take(ids, order), stacked.paths, _take(stacked.path_of, order), _take(rows, order))


def _files(stacked: _Stacked, order: Int64Array | None) -> dict[str, Any]:
    """File of each sample."""
    if len(stacked.pieces) == 1 and stacked.in_place.all() and len(stacked.paths) == 1:
        n = len(stacked.times) if order is None else len(order)
        return {"paths": tuple(stacked.paths), "file": np.zeros(n, dtype=np.int32)}
    in_place, path_of = _take(stacked.in_place, order), _take(stacked.path_of, order)
    used = np.zeros(len(stacked.paths), dtype=bool)
    used[path_of[in_place]] = True
    number = np.cumsum(used, dtype=np.int32) - np.int32(1)
    file = np.where(in_place, number[path_of], np.int32(np.count_nonzero(used)))
    return {"paths": tuple(stacked.paths[path] for path in np.flatnonzero(used)), "file": file}


def _bytes(stacked: _Stacked, order: Int64Array | None, columns: Sequence[Column]) -> dict[str, Any]:
    """Extent of each sample in its file, and the parts of the shard."""
    pieces = stacked.pieces
    ranges = [piece.ranges for piece in pieces if piece.ranges is not None]
    if not ranges:
        return _converted(pieces, order, columns)
    offsets = _take(concatenate([part.offsets for part in ranges]), order)
    lengths = _take(concatenate([part.lengths for part in ranges]), order)
    in_place = _take(stacked.in_place, order)
    if in_place.all():
        return {"offsets": offsets, "lengths": lengths, "shard": None}
    # The shard holds samples one after the other, in key order.
    ends = np.cumsum(np.where(in_place, 0, lengths))
    starts = np.where(in_place, offsets, ends - lengths)
    packed = np.flatnonzero(~in_place)
    chosen = packed if order is None else order[packed]
    return {"offsets": starts, "lengths": lengths, "shard": _packed(stacked, chosen, offsets[packed], lengths[packed])}


def _converted(pieces: Sequence[Piece], order: Int64Array | None, columns: Sequence[Column]) -> dict[str, Any]:
    content = pa.concat_tables([piece.payload for piece in pieces])
    if order is not None:
        content = content.take(pa.array(order))
    parts, width = encode_table(columns, content)
    offsets = width * np.arange(len(content), dtype=np.int64)
    return {"offsets": offsets, "lengths": np.full(len(content), width, dtype=np.int64), "shard": parts}


def _packed(stacked: _Stacked, order: Int64Array, offsets: Int64Array, lengths: Int64Array) -> Iterator[ByteArray]:
    """Bytes of samples one after the other in key order, some megabytes at a time."""
    payload = stacked.pieces[0].payload
    if isinstance(payload, SmallFiles):
        return payload.read(order, unread=np.setdiff1d(np.flatnonzero(~stacked.in_place), order))
    return _gathered(stacked.pieces, order, offsets, lengths)


def _gathered(pieces: Sequence[Piece], order: Int64Array, offsets: Int64Array, lengths: Int64Array) -> Iterator[ByteArray]:
    bounds = np.cumsum([0, *(len(piece) for piece in pieces)])
    ends = np.cumsum(lengths)
    cuts = np.searchsorted(ends, np.arange(_PART, int(ends[-1]), _PART), side="right")
    for start, stop in pairwise(np.unique([0, *cuts, len(order)])):
        part = slice(start, stop)
        piece_of = np.searchsorted(bounds, order[part], side="right") - 1
        buffer = np.empty(int(lengths[part].sum()), dtype=np.uint8)
        starts = np.cumsum(lengths[part]) - lengths[part]
        for i in np.unique(piece_of):
            chosen = np.flatnonzero(piece_of == i)
            gather_into(pieces[i].payload, offsets[part][chosen], lengths[part][chosen], buffer, starts[chosen])
        yield buffer


def _take(values: Any, order: Int64Array | None) -> Any:
    if values is None or order is None:
        return values
    return values[order] if isinstance(values, np.ndarray) else values.take(pa.array(order))
