import numpy as np
import numpy.typing as npt

def candidates(
    data: npt.NDArray[np.uint8],
    start: int,
    key: npt.NDArray[np.uint64],
    bits: npt.NDArray[np.uint8],
    shift: int,
    positions: npt.NDArray[np.int64],
    marks: npt.NDArray[np.uint32],
) -> tuple[int, int]: ...
