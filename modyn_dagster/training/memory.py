"""Aligned arrays, for which kernels give the same bits."""

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

#: Alignment of torch's tensors. Kernels choose their path by the alignment of inputs, and thereby the bits.
ALIGNMENT: Final = 64

#: ``(shape, dtype) -> array`` of arbitrary values.
Allocate = Callable[[tuple[int, ...], npt.DTypeLike], npt.NDArray[Any]]


def empty_aligned(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Allocate an array at a multiple of 64 bytes."""
    item = np.dtype(dtype)
    size = math.prod(shape) * item.itemsize
    memory = np.empty(size + ALIGNMENT, dtype=np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(item).reshape(shape)


def aligned(array: npt.NDArray[Any], allocate: Allocate = empty_aligned) -> npt.NDArray[Any]:
    """Return the array if it is aligned, contiguous and in native byte order, else a copy that is."""
    native = array.dtype.newbyteorder("=")
    sound = array.flags.c_contiguous and array.flags.writeable and array.ctypes.data % ALIGNMENT == 0
    if sound and array.dtype == native:
        return array
    copy = allocate(array.shape, native)
    copy[...] = array
    return copy


#: One array per input, by name: ``[n, ...]``.
Arrays = dict[str, npt.NDArray[Any]]
