from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

OPERATIONS: Final[Mapping[str, int]]

def gather_columns(
    bases: npt.NDArray[np.uint64],
    file: npt.NDArray[np.int32],
    offset: npt.NDArray[np.int64],
    first: int,
    span: int,
    operations: npt.NDArray[np.int64],
    outputs: npt.NDArray[np.int64],
    threads: int,
    ahead: bool,
) -> int: ...
def evict(rows: npt.NDArray[np.uint8]) -> None: ...
