import numpy as np
import numpy.typing as npt

def take(
    start: npt.NDArray[np.int64],
    guess: npt.NDArray[np.int32],
    shift: int,
    key_at: npt.NDArray[np.uint64],
    weight_at: npt.NDArray[np.uint64],
    weight_mask: npt.NDArray[np.int64],
    positions: npt.NDArray[np.int64],
    keys: npt.NDArray[np.uint64],
    weights: npt.NDArray[np.float32],
) -> tuple[int, int]: ...
def mark(
    start: npt.NDArray[np.int64],
    guess: npt.NDArray[np.int32],
    shift: int,
    positions: npt.NDArray[np.int64],
    touched: npt.NDArray[np.uint8],
) -> int: ...
def is_uniform(address: int, n: int) -> bool: ...
def copy_out(address: int, out: npt.NDArray[np.uint8]) -> int: ...
