"""What models made of blocks of samples, kept in memory as long as there is room."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

#: Bytes that one process keeps.
_MOST_BYTES: Final = 512 << 20


@dataclass(frozen=True, slots=True)
class BlockKey:
    """One block of one batch in the eyes of one model; ``deleted`` is the version of the batch's list of deleted samples."""

    model_hash: str
    ordinal: int
    block: int
    deleted: int


@dataclass(frozen=True, slots=True)
class BlockValues:
    """The samples of a block that are present.

    Attributes:
        positions: inside the batch, ascending, ``int64[n]``.
        truth: classes ``int64[n]`` (-1: none) or targets ``float64[n]`` (NaN: none); None where the dataset has no label.
        taps: by name of the tap, ``float32[n, values]``.
    """

    positions: npt.NDArray[np.int64]
    truth: npt.NDArray[Any] | None
    taps: dict[str, npt.NDArray[np.float32]]

    @property
    def n_bytes(self) -> int:
        """Memory it takes."""
        return self.positions.nbytes + sum(array.nbytes for array in self.taps.values())


class BlockCache:
    """Blocks by key; the ones that were not asked for the longest go first, and all of a model when another one's come."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._blocks: OrderedDict[BlockKey, BlockValues] = OrderedDict()
        self._n_bytes = 0
        self._model = ""

    def find(self, key: BlockKey, taps: frozenset[str]) -> BlockValues | None:
        """A block with at least these taps."""
        found = self._blocks.get(key)
        if found is None or not taps <= found.taps.keys():
            return None
        self._blocks.move_to_end(key)
        return found

    def keep(self, key: BlockKey, values: BlockValues) -> None:
        """Keep a block, in place of one that showed less."""
        if key.model_hash != self._model:
            self._blocks.clear()
            self._model, self._n_bytes = key.model_hash, 0
        if key in self._blocks:
            self._drop(key)
        self._blocks[key] = values
        self._n_bytes += values.n_bytes
        while self._n_bytes > self._most_bytes and len(self._blocks) > 1:
            self._drop(next(iter(self._blocks)))

    def _drop(self, key: BlockKey) -> None:
        self._n_bytes -= self._blocks.pop(key).n_bytes
