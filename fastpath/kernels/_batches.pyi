from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

BATCH_FIELDS: Final[tuple[str, ...]]
MODES: Final[Mapping[str, int]]

def fill_directory(
    ordinals: npt.NDArray[np.int64], out_ordinals: npt.NDArray[np.int64], out_slots: npt.NDArray[np.int32]
) -> int: ...
def publish(table: npt.NDArray[np.int64], slot: int, mode: int) -> None: ...
