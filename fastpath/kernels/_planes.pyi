import numpy as np
import numpy.typing as npt

def three_planes(pixels: npt.NDArray[np.uint8], planes: npt.NDArray[np.uint8]) -> None: ...
