from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

CODES: Final[Mapping[str, int]]

class Resolver:
    at: int
    fault: int
    def __init__(
        self, ordinals: npt.NDArray[np.int64], slots: npt.NDArray[np.int32], shift: int, table: npt.NDArray[np.int64]
    ) -> None: ...
    def make_room(self, marks: npt.NDArray[np.uint8], touched: npt.NDArray[np.int32]) -> None: ...
    @property
    def n_touched(self) -> int: ...
    def begin(self) -> None: ...
    def places(
        self,
        keys: npt.NDArray[np.uint64],
        file: npt.NDArray[np.int32],
        offset: npt.NDArray[np.int64],
        length: npt.NDArray[np.int64] | None,
    ) -> int: ...
    def words(self, keys: npt.NDArray[np.uint64], words: npt.NDArray[np.int64], labels: bool) -> int: ...
