import numpy as np
import numpy.typing as npt

class MappedFile:
    address: int
    size: int
    def __init__(self, descriptor: int, size: int) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

def address_of(path: bytes) -> int: ...
def first_changed(
    files: npt.NDArray[np.int32],
    paths: npt.NDArray[np.uint64],
    inodes: npt.NDArray[np.uint64],
    sizes: npt.NDArray[np.int64],
    modified: npt.NDArray[np.int64],
) -> int: ...
