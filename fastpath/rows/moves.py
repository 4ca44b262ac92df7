"""Which values of a row go where in a row of an output: what the kernel of columns is told."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from fastpath.kernels._columns import OPERATIONS

#: Types that values can be converted to, by their names in operations.
TARGETS: Final = {"float32": "f4", "float64": "f8", "int32": "i4", "int64": "i8", "uint8": "u1", "bool": "b1"}


@dataclass(frozen=True, slots=True)
class Move:
    """``count`` values at a byte of the row, to a byte of the output's row; ``reads`` and ``writes`` are bytes of one value."""

    operation: str
    source: int
    count: int
    target: int
    reads: int
    writes: int

    @property
    def source_end(self) -> int:
        """The byte of the row behind the last value."""
        return self.source + self.count * self.reads

    @property
    def target_end(self) -> int:
        """The byte of the output's row behind the last value."""
        return self.target + self.count * self.writes

    def then(self, other: "Move") -> "Move | None":
        """Both as one, where the other goes on in both rows."""
        if self.operation != other.operation or (self.source_end, self.target_end) != (other.source, other.target):
            return None
        return Move(self.operation, self.source, self.count + other.count, self.target, self.reads, self.writes)


def conversion(dtype: np.dtype[Any], source: int, target: int, to: np.dtype[Any]) -> Move:
    """A field converted as ``astype`` does. Raises ``ValueError`` for types that are no numbers."""
    base, shape = parts(dtype)
    code = "b1" if base.kind == "b" else f"{base.kind}{base.itemsize}"
    operation = f"{code}{'' if base.isnative else '_swapped'}_to_{TARGETS[to.name]}"
    if operation not in OPERATIONS:
        raise ValueError(f"values of {base} cannot be converted to {to}; name the field by itself to get it as it is")
    # A byte of a bool may be anything but 0; as it is copied it would stay so.
    if base.isnative and base == to and base.kind != "b":
        return Move("bytes", source, prod(shape) * base.itemsize, target, 1, 1)
    return Move(operation, source, prod(shape), target, base.itemsize, to.itemsize)


def copies(dtype: np.dtype[Any], source: int, target: int) -> Iterator[Move]:
    """A field as it is but for its byte order, which records have value by value."""
    base, _ = parts(dtype)
    if is_native(base):
        yield Move("bytes", source, dtype.itemsize, target, 1, 1)
    elif base.fields is not None:
        for at in range(0, dtype.itemsize, base.itemsize):
            for inner, offset, *_ in base.fields.values():
                yield from copies(inner, source + at + offset, target + at + offset)
    else:
        word = {"c": base.itemsize // 2, "U": 4}.get(base.kind, base.itemsize)
        if f"swap_{word}" not in OPERATIONS:
            raise ValueError(f"values of {base} are not supported")
        yield Move(f"swap_{word}", source, dtype.itemsize // word, target, word, word)


def merged(moves: Iterable[Move]) -> list[Move]:
    """Neighbours of one operation as one."""
    found: list[Move] = []
    for move in moves:
        both = found[-1].then(move) if found else None
        if both is None:
            found.append(move)
        else:
            found[-1] = both
    return found


def parts(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """The type of one value, and the shape of a sub-array of them."""
    return dtype.subdtype if dtype.subdtype is not None else (dtype, ())


def fields_of(dtype: np.dtype[Any]) -> Mapping[str, Any]:
    """The fields of a record; none of other types."""
    return dtype.fields or {}


def is_native(dtype: np.dtype[Any]) -> bool:
    """Whether all values have the machine's byte order; NumPy's own answer for records overlooks sub-arrays."""
    if dtype.fields is None:
        return dtype.isnative
    return all(is_native(parts(field[0])[0]) for field in dtype.fields.values())
