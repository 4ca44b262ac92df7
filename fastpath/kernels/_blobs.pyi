import numpy as np
import numpy.typing as npt

def copy_ranges(
    bases: npt.NDArray[np.uint64],
    file: npt.NDArray[np.int32],
    offset: npt.NDArray[np.int64],
    out_offsets: npt.NDArray[np.int64],
    separator: npt.NDArray[np.uint8],
    out: npt.NDArray[np.uint8],
    threads: int,
) -> int: ...
def first_outside(
    file: npt.NDArray[np.int32], offset: npt.NDArray[np.int64], length: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> int: ...
