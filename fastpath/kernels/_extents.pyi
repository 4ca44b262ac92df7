import numpy as np
import numpy.typing as npt

def check_extents(
    file: npt.NDArray[np.int32],
    offset: npt.NDArray[np.int64],
    length: npt.NDArray[np.int64],
    start: npt.NDArray[np.int64] | None,
    stride: npt.NDArray[np.int64] | None,
    samples: int,
    size: npt.NDArray[np.int64],
) -> tuple[int, int, int]: ...
