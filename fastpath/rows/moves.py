"""Moves of values from a row to a row of an output, in the form that the kernel of columns executes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from fastpath.kernels._columns import OPERATIONS

#: Target types of conversions, with their codes in the names of operations.
TARGETS: Final = {"float32": "f4", "float64": "f8", "int32": "i4", "int64": "i8", "uint8": "u1", "bool": "b1"}


@dataclass(frozen=True, slots=True)
class Move:
    """Move of ``count`` values from byte ``source`` of the row to byte ``target`` of the output's row.

    ``reads`` and ``writes`` are the bytes of one value in both.
    """

    operation: str
    source: int
    count: int
    target: int
    reads: int
    writes: int

    @property
    def source_end(self) -> int:
        """Byte of the row behind the last value."""
        return self.source + self.count * self.reads

    @property
    def target_end(self) -> int:
        """Byte of the output's row behind the last value."""
        return self.target + self.count * self.writes

    def then(self, other: "Move") -> "Move | None":
        """Both moves as one, if the other continues this one in both rows."""
        if self.operation != other.operation or (self.source_end, self.target_end) != (other.source, other.target):
            return None
        return Move(self.operation, self.source, self.count + other.count, self.target, self.reads, self.writes)


def conversion(dtype: np.dtype[Any], source: int, target: int, to: np.dtype[Any]) -> Move:
    """Move that converts a field as ``astype`` does. Raises ``ValueError`` for types that are no numbers."""
    base, shape = parts(dtype)
    code = "b1" if base.kind == "b" else f"{base.kind}{base.itemsize}"
    operation = f"{code}{'' if base.isnative else '_swapped'}_to_{TARGETS[to.name]}"
    if operation not in OPERATIONS:
        raise ValueError(f"values of {base} cannot be converted to {to}; name the field by itself to get its own type")
    # A true bool may be stored as any byte but 0, which a plain copy would preserve.
    if base.isnative and base == to and base.kind != "b":
        return Move("bytes", source, prod(shape) * base.itemsize, target, 1, 1)
    return Move(operation, source, prod(shape), target, base.itemsize, to.itemsize)


def copies(dtype: np.dtype[Any], source: int, target: int) -> Iterator[Move]:
    """Moves that copy a field, changing only the byte order."""
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
    """Moves with neighbours of one operation merged."""
    result: list[Move] = []
    for move in moves:
        both = result[-1].then(move) if result else None
        if both is None:
            result.append(move)
        else:
            result[-1] = both
    return result


def parts(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Type of one value, and the shape of a sub-array of them."""
    return dtype.subdtype if dtype.subdtype is not None else (dtype, ())


def fields_of(dtype: np.dtype[Any]) -> Mapping[str, Any]:
    """Fields of a record type; none of other types."""
    return dtype.fields or {}


def is_native(dtype: np.dtype[Any]) -> bool:
    """True if all values have the machine's byte order; NumPy's own answer for records overlooks sub-arrays."""
    if dtype.fields is None:
        return dtype.isnative
    return all(is_native(parts(field[0])[0]) for field in dtype.fields.values())
