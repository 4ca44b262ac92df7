import numpy as np
import numpy.typing as npt

def pack(plane: npt.NDArray[np.uint8], bits: int, packed: npt.NDArray[np.uint8], large: npt.NDArray[np.uint8]) -> int: ...
