"""Columns: fields of a row as typed output arrays, planned once and filled in one pass over the rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpath.array_types import address_of
from fastpath.kernels._columns import OPERATIONS
from fastpath.rows.moves import TARGETS, Move, conversion, copies, fields_of, merged, parts
from fastpath.threads.ring import aligned_bytes, rounded_up

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Group:
    """Fields whose values stand side by side in one output, converted to one type as ``astype`` does."""

    fields: tuple[str, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Layout of the outputs for ``n`` rows in a buffer: name, first byte, byte behind the last, shape and dtype of each."""

    n: int
    outputs: tuple[tuple[str, int, int, tuple[int, ...], np.dtype[Any]], ...]
    nbytes: int


class Columns:
    """Plan of the columns to make of rows.

    Values that the output's type cannot hold are as undefined as in NumPy's ``astype``.

    Args:
        dtype: structured type of a row.
        groups: output arrays by name. Fields and a type (float32, float64, int32, int64, uint8 or bool) give ``[n, k]``, k the
            number of their values, sub-arrays flattened; the name of one field gives ``[n]`` or ``[n, *shape]`` in the
            field's own type and the machine's byte order.

    Raises:
        ValueError: an unknown field, an unsupported type, or rows with Python objects.

    >>> row = np.dtype([("label", "<i4"), ("x", "<f4", (2,))])
    >>> columns = Columns(row, {"label": "label", "inputs": (["x", "label"], np.float64)})
    >>> {name: (shape, dtype.name) for name, (shape, dtype) in columns.shapes(5).items()}
    {'label': ((5,), 'int32'), 'inputs': ((5, 3), 'float64')}
    """

    def __init__(self, dtype: np.dtype[Any], groups: "Mapping[str, Group | tuple[Sequence[str], npt.DTypeLike] | str]") -> None:
        self.dtype = np.dtype(dtype)
        if self.dtype.hasobject:
            raise ValueError(f"rows of {self.dtype} have fields of Python objects, which no file can hold")
        self.groups: Mapping[str, Group | str] = {name: _group(group) for name, group in groups.items()}
        self._outputs = {name: self._output(name, group) for name, group in self.groups.items()}
        self._row_bytes = {name: prod(shape) * dtype.itemsize for name, (shape, dtype) in self._outputs.items()}
        # Cached: all batches of an epoch but the last have one size.
        self._cached_layout = self._new_layout(0)
        moves = [(at, move) for at, group in enumerate(self.groups.values()) for move in merged(self._moves(group))]
        #: Operations of the kernel: (operation, byte in the row, count, output, byte in the output's row).
        self.operations = np.array(
            [(OPERATIONS[move.operation], move.source, move.count, at, move.target) for at, move in moves], dtype=np.int64
        ).reshape(-1, 5)
        first = min((move.source for _, move in moves), default=0)
        #: Bytes of a row that are read: the first, and their number.
        self.span = first, max((move.source_end for _, move in moves), default=0) - first

    def __repr__(self) -> str:
        return f"Columns({self.dtype!r}, {dict(self.groups)!r})"

    def __reduce__(self) -> tuple[type["Columns"], tuple[np.dtype[Any], dict[str, Group | str]]]:
        return Columns, (self.dtype, dict(self.groups))

    def shapes(self, n: int) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of each output for n rows."""
        return {name: ((n, *shape), dtype) for name, (shape, dtype) in self._outputs.items()}

    def nbytes(self, n: int) -> int:
        """Bytes of a buffer for ``within``."""
        return self._layout(n).nbytes

    def allocate(self, n: int) -> dict[str, npt.NDArray[Any]]:
        """Uninitialised arrays for n rows, in one piece of memory."""
        return self.within(aligned_bytes(self.nbytes(n)), n)

    def within(self, buffer: npt.NDArray[np.uint8], n: int) -> dict[str, npt.NDArray[Any]]:
        """Arrays for n rows as views of a buffer of ``nbytes(n)`` or more, each at a multiple of 64 bytes from its start."""
        layout = self._layout(n)
        if len(buffer) < layout.nbytes:
            raise ValueError(f"{n} rows take {layout.nbytes} bytes, the buffer has {len(buffer)}")
        return {name: buffer[start:stop].view(dtype).reshape(shape) for name, start, stop, shape, dtype in layout.outputs}

    def places(self, n: int, out: Arrays) -> npt.NDArray[np.int64]:
        """Outputs of the kernel: address, and bytes of a row, of the array of each group.

        Raises ``ValueError`` unless each is writable, contiguous and of the right shape and type.
        """
        places = []
        for name, _, _, shape, dtype in self._layout(n).outputs:
            array = out.get(name)
            if array is None or array.shape != shape or array.dtype != dtype:
                actual = "nothing" if array is None else f"{array.dtype}{list(array.shape)}"
                raise ValueError(f"column {name!r}: expected {dtype}{list(shape)}, found {actual}")
            flags = array.flags
            if not (flags.c_contiguous and flags.writeable):
                raise ValueError(f"column {name!r} must be contiguous and writable")
            places.append((address_of(array), self._row_bytes[name]))
        return np.array(places, dtype=np.int64).reshape(-1, 2)

    def _layout(self, n: int) -> _Layout:
        layout = self._cached_layout
        if layout.n != n:
            self._cached_layout = layout = self._new_layout(n)
        return layout

    def _new_layout(self, n: int) -> _Layout:
        outputs, start = [], 0
        for name, (shape, dtype) in self._outputs.items():
            stop = start + n * self._row_bytes[name]
            outputs.append((name, start, stop, (n, *shape), dtype))
            start += rounded_up(stop - start)
        return _Layout(n, tuple(outputs), start)

    def _output(self, name: str, group: Group | str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        names = (group,) if isinstance(group, str) else group.fields
        fields = fields_of(self.dtype)
        for field in names:
            if field not in fields:
                raise ValueError(f"column {name!r}: the rows have no field {field!r}; they have {list(fields)}")
        if isinstance(group, str):
            base, shape = parts(self.dtype[group])
            return shape, base.newbyteorder("=")
        if group.dtype.name not in TARGETS or not group.dtype.isnative:
            raise ValueError(f"column {name!r}: {group.dtype} is not one of {', '.join(TARGETS)}")
        return (sum(prod(parts(self.dtype[field])[1]) for field in names),), group.dtype

    def _moves(self, group: Group | str) -> Iterator[Move]:
        """Moves of one output, field by field."""
        if isinstance(group, str):
            dtype, source, *_ = fields_of(self.dtype)[group]
            yield from copies(dtype, source, 0)
            return
        target = 0
        for name in group.fields:
            dtype, source, *_ = fields_of(self.dtype)[name]
            move = conversion(dtype, source, target, group.dtype)
            target = move.target_end
            yield move


def _group(group: "Group | tuple[Sequence[str], npt.DTypeLike] | str") -> Group | str:
    if isinstance(group, (Group, str)):
        return group
    fields, dtype = group
    return Group(tuple(fields), np.dtype(dtype))
