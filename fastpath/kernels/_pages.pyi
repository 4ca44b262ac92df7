import numpy as np
import numpy.typing as npt

def bring_in(
    bases: npt.NDArray[np.uint64],
    sizes: npt.NDArray[np.int64],
    file: npt.NDArray[np.int32],
    offset: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64] | None,
    length: int,
    sampled: int,
    seed: int,
    max_gap: int,
    max_read: int,
    dense: int,
    visible: bool,
) -> int: ...
