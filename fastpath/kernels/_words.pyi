import numpy as np
import numpy.typing as npt

Buffer = bytes | bytearray | memoryview | npt.NDArray[np.uint8]

def split(words: Buffer, base: Buffer, mode: int, width: int, planes: npt.NDArray[np.uint8]) -> None: ...
def join(planes: list[Buffer], base: Buffer, mode: int, width: int, words: Buffer) -> None: ...
