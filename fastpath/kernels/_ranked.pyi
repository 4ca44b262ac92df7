import numpy as np
import numpy.typing as npt

def add(
    positive: npt.NDArray[np.uint8],
    order: npt.NDArray[np.int32],
    rank: npt.NDArray[np.int32],
    first: npt.NDArray[np.int32],
    last: npt.NDArray[np.int32],
    doubled: npt.NDArray[np.int64],
    below: npt.NDArray[np.int64],
    tied: npt.NDArray[np.int64],
) -> None: ...
