import numpy as np
import numpy.typing as npt

def copy_ranges(
    source: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    out_offsets: npt.NDArray[np.int64],
    out: npt.NDArray[np.uint8],
) -> None: ...
