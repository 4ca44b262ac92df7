"""Nested columns of Parquet: fields of structs as columns of their own, and lists of numbers that are all of one length."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from modyn_dagster.errors import DataError

#: Numbers in lists, and how a record has them.
ELEMENTS: Final = {pa.float32(): "<f4", pa.float64(): "<f8"}
#: Structs within structs that are taken apart.
_DEEPEST: Final = 32


def flat(path: str, content: pa.Table) -> pa.Table:
    """Replace columns of structs by their fields, named by dotted paths; a missing struct misses all of them."""
    for _ in range(_DEEPEST):
        if not any(pa.types.is_struct(field.type) for field in content.schema):
            return content
        content = content.flatten()
    nested = next((field.name for field in content.schema if pa.types.is_struct(field.type)), None)
    if nested is not None:
        raise DataError(path, f"structs are nested more than {_DEEPEST} deep", column=nested[:200])
    return content


def is_list(type_: pa.DataType) -> bool:
    """Test for a type of lists."""
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(test(type_) for test in tests)


def list_dtype(path: str, name: str, values: pa.ChunkedArray) -> str:
    """Dtype of a column of lists of numbers as NumPy writes that of a sub-array: ``(16,)<f4``.

    Raises ``DataError`` for the first list that is missing, empty or of another length than the first one.
    """
    lengths = pc.fill_null(pc.list_value_length(values), -1).to_numpy().astype(np.int64)
    if (lengths < 0).any():
        raise DataError(path, "the list is missing", row=int(np.argmax(lengths < 0)) + 1, column=name)
    if (lengths != lengths[0]).any():
        row = int(np.argmax(lengths != lengths[0]))
        problem = f"the list has {lengths[row]} numbers, that of row 1 has {lengths[0]}; all need the same number"
        raise DataError(path, problem, row=row + 1, column=name)
    if lengths[0] == 0:
        raise DataError(path, "the list is empty", row=1, column=name)
    return f"({lengths[0]},){ELEMENTS[values.type.value_type]}"


def fixed_lists(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Lists of one length as lists of a fixed size; a missing number is NaN. There is at least one."""
    lists = pa.concat_arrays(values.chunks)
    numbers = pc.fill_null(lists.flatten(), float("nan"))
    return pa.chunked_array([pa.FixedSizeListArray.from_arrays(numbers, len(numbers) // len(lists))])


def numbers_of(values: pa.Array) -> npt.NDArray[Any]:
    """Values of a column as NumPy has them: ``[n]``, of lists of a fixed size ``[n, size]``.

    >>> numbers_of(pa.array([[1.0, 2.0]], pa.list_(pa.float64(), 2)))
    array([[1., 2.]])
    """
    if not pa.types.is_fixed_size_list(values.type):
        return np.asarray(values.to_numpy(zero_copy_only=False))
    return np.asarray(values.flatten().to_numpy(zero_copy_only=False)).reshape(len(values), values.type.list_size)
