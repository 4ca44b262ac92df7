"""Vocabularies: the values of a column that have numbers of their own, chosen by their counts in a training set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

#: Distinct values of chunks that are merged at once.
_PENDING: Final = 1 << 16


def as_bytes(column: npt.NDArray[Any]) -> pa.LargeBinaryArray:
    """Values of a column as the bytes of their text; a missing text is empty.

    Integers are decimal numbers, truth values ``true`` and ``false``. Raises ``pyarrow.ArrowException`` for other objects.

    >>> as_bytes(np.array([7, -1])).to_pylist()
    [b'7', b'-1']
    """
    if column.dtype.kind == "O":
        values = pa.array(column, pa.large_binary(), from_pandas=True)
        return values if values.null_count == 0 else pc.fill_null(values, b"")
    values = pa.array(column)
    if column.dtype.kind in "biu":
        values = values.cast(pa.large_string())
    return values.cast(pa.large_binary())


def distinct_of(values: pa.LargeBinaryArray) -> tuple[list[bytes], npt.NDArray[np.int64]]:
    """Distinct values, and the place of each value among them, ``int64[n]``: what is done per value is then done for few."""
    encoded = pc.dictionary_encode(values)
    return encoded.dictionary.to_numpy(zero_copy_only=False).tolist(), encoded.indices.to_numpy().astype(np.int64)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Values with the numbers 1 to n, in this order; all other values have the number 0.

    Attributes:
        values: distinct, without nulls.
        knows_unknown: True if a training saw unknown values, so that a model has learnt something of them.

    >>> vocabulary = Vocabulary(pa.array([b"blue", b"red"], pa.large_binary()), knows_unknown=False)
    >>> vocabulary.numbers(as_bytes(np.array(["red", "green", "blue"], dtype=object)))
    array([2, 0, 1])
    """

    values: pa.LargeBinaryArray
    knows_unknown: bool
    _numbers: Mapping[bytes, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Arrow's own look-up would hash the vocabulary anew for every batch.
        object.__setattr__(self, "_numbers", {value: i for i, value in enumerate(self.values.to_pylist(), 1)})

    def numbers(self, values: pa.LargeBinaryArray) -> npt.NDArray[np.int64]:
        """Numbers of values, ``int64[n]``."""
        distinct, places = distinct_of(values)
        return np.fromiter(map(self._numbers.get, distinct, repeat(0)), np.int64, len(distinct))[places]


class Counts:
    """Numbers of samples by value, whatever the order of the samples."""

    def __init__(self) -> None:
        self._pending: list[pa.Table] = []
        self._n_pending = 0

    def update(self, values: pa.LargeBinaryArray) -> None:
        """Count the values of some samples."""
        counted = pc.value_counts(values)
        self._pending.append(pa.table({"value": counted.field("values"), "count": counted.field("counts")}))
        self._n_pending += len(counted)
        # The merged counts are among the pending ones: merging at their double takes constant time per value.
        if self._n_pending > max(_PENDING, 2 * len(self._pending[0])):
            self.table()

    def table(self) -> pa.Table:
        """Columns ``value`` and ``count``, each value once."""
        if len(self._pending) != 1:
            merged = pa.concat_tables(self._pending).group_by("value", use_threads=False).aggregate([("count", "sum")])
            self._pending = [merged.select(["value", "count_sum"]).rename_columns(["value", "count"])]
        self._n_pending = len(self._pending[0])
        return self._pending[0]


class TooManyValues(Exception):
    """A vocabulary would have more values than its bound."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.n = n


def vocabulary_of(
    counts: Counts, *, max_values: int, min_count: int, refuse: bool, known: Vocabulary | None = None
) -> Vocabulary:
    """Choose the vocabulary of a training set.

    Values of a ``known`` vocabulary keep their numbers; those of the training set that are new follow, in the order of their
    bytes. Where there is not room for all, those of most samples are taken, of equals the smallest.

    Args:
        counts: of the training set.
        max_values: bound of the vocabulary.
        min_count: samples that a new value has at least.
        refuse: raise ``TooManyValues`` where there is not room for all.
        known: vocabulary of an earlier model.
    """
    table = counts.table()
    values = table["value"].combine_chunks() if isinstance(table["value"], pa.ChunkedArray) else table["value"]
    old = known.values if known is not None else pa.array([], pa.large_binary())
    is_old = pc.is_in(values, value_set=old)
    new = table.filter(pc.and_(pc.invert(is_old), pc.greater_equal(table["count"], min_count)))
    room = max_values - len(old)
    if refuse and len(new) > room:
        raise TooManyValues(len(old) + len(new))
    order = pc.sort_indices(new, sort_keys=[("count", "descending"), ("value", "ascending")])
    taken = new["value"].take(order[: max(0, room)])
    added = taken.take(pc.sort_indices(taken))
    n_unknown = len(values) - int(pc.sum(is_old).as_py() or 0) - len(added)
    all_values = _joined([old, *added.chunks] if isinstance(added, pa.ChunkedArray) else [old, added])
    return Vocabulary(all_values, n_unknown > 0 or (known is not None and known.knows_unknown))


def _joined(arrays: Sequence[pa.Array]) -> pa.LargeBinaryArray:
    return pa.concat_arrays([array.cast(pa.large_binary()) for array in arrays])


def packed(values: pa.LargeBinaryArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Bytes of values one after the other, ``uint8[n_bytes]``, and their offsets, ``int64[n + 1]``."""
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int64)[values.offset : values.offset + len(values) + 1]
    text = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)
    return text[bounds[0] : bounds[-1]].copy(), bounds - bounds[0]


def unpacked(text: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> pa.LargeBinaryArray:
    """Values of their bytes and offsets; ``ValueError`` where these do not belong together."""
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(text) or (np.diff(offsets) < 0).any():
        raise ValueError("offsets do not fit the bytes")
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(np.ascontiguousarray(text))]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
