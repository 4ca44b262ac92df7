"""Types of the arrays that cross the package: keys, weights, times, offsets and bytes."""

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]

TimeArray = npt.NDArray[np.datetime64]

KeyArray = npt.NDArray[np.uint64]
WeightArray = npt.NDArray[np.float32]

ByteArray = npt.NDArray[np.uint8]
