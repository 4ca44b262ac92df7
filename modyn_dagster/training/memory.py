"""Memory that kernels treat alike."""

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

#: What torch gives its tensors. Kernels choose their path by the alignment of their input: other memory, other bits.
ALIGNMENT: Final = 64

#: ``(shape, dtype) -> array`` of arbitrary values.
Allocate = Callable[[tuple[int, ...], npt.DTypeLike], npt.NDArray[Any]]


def empty_aligned(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array that begins at a multiple of 64 bytes."""
    wanted = np.dtype(dtype)
    size = math.prod(shape) * wanted.itemsize
    memory = np.empty(size + ALIGNMENT, dtype=np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(wanted).reshape(shape)


def aligned(array: npt.NDArray[Any], allocate: Allocate = empty_aligned) -> npt.NDArray[Any]:
    """The array itself if it lies as torch's own would, else a copy that does; in the machine's byte order."""
    native = array.dtype.newbyteorder("=")
    sound = array.flags.c_contiguous and array.flags.writeable and array.ctypes.data % ALIGNMENT == 0
    if sound and array.dtype == native:
        return array
    copy = allocate(array.shape, native)
    copy[...] = array
    return copy


#: One array per input, by name: ``[n, ...]``.
Arrays = dict[str, npt.NDArray[Any]]
