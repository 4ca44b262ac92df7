"""Sample keys: ``batch ordinal << 32 | position in batch``.

The order of keys is the order of arrival, and a key locates its sample without a search. Ordinals stay below 2**31, so that
a key fits a Postgres ``bigint``. A window of the stream is a half-open range ``(after, until]`` of keys.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

KeyArray = npt.NDArray[np.uint64]

#: The position before the first key of a stream: ``(ORIGIN, k]`` holds all keys up to and including ``k``.
ORIGIN: Final = -1
MAX_ORDINAL: Final = 2**31 - 1
MAX_BATCH_SIZE: Final = 2**32


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys with ``after < key <= until``."""

    after: int
    until: int


def key_of(ordinal: int, position: int) -> int:
    """Key of one sample.

    >>> key_of(2, 5), ordinal_of(key_of(2, 5)), position_of(key_of(2, 5))
    (8589934597, 2, 5)
    """
    return ordinal << 32 | position


def keys_of(ordinal: int, positions: npt.ArrayLike) -> KeyArray:
    """Keys of many positions of one batch, ``uint64[n]``."""
    return np.uint64(ordinal << 32) | np.asarray(positions, dtype=np.uint64)


def ordinal_of(key: int) -> int:
    """Ordinal of the batch of a key; -1 for ``ORIGIN``."""
    return key >> 32


def position_of(key: int) -> int:
    """Position of a key inside its batch."""
    return key & 0xFFFFFFFF


def ordinals_of(keys: KeyArray) -> npt.NDArray[np.int64]:
    """Batch ordinals of many keys, ``int64[n]``."""
    return (keys >> np.uint64(32)).astype(np.int64)


def positions_of(keys: KeyArray) -> npt.NDArray[np.int64]:
    """Positions inside their batches of many keys, ``int64[n]``."""
    return (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)
