import numpy as np
import numpy.typing as npt

def encode(
    keys: npt.NDArray[np.int64],
    times: npt.NDArray[np.int64],
    labels: npt.NDArray[np.int64] | None,
    targets: npt.NDArray[np.float64] | None,
    text_offsets: npt.NDArray[np.int64] | None,
    text: npt.NDArray[np.uint8] | None,
    out: npt.NDArray[np.uint8],
) -> int: ...
