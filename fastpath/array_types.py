"""Types of the arrays that cross the package: keys, weights, times, offsets and bytes."""

from typing import Any

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]

TimeArray = npt.NDArray[np.datetime64]

KeyArray = npt.NDArray[np.uint64]
WeightArray = npt.NDArray[np.float32]

ByteArray = npt.NDArray[np.uint8]
Int32Array = npt.NDArray[np.int32]


def address_of(array: npt.NDArray[Any]) -> int:
    """Address of the first byte of an array."""
    return int(array.__array_interface__["data"][0])
