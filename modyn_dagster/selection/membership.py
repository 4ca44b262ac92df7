"""Membership of keys in a training set, without reading it whole.

Selections write their keys in ascending order, so a binary search over the first keys of the partitions names the one that can
hold a key. Only that partition is read, and its neighbour where the key lies between two; both are verified, and an answer
rests on verified keys alone.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastpath.format.training_set_file import TrainingSetFile
from modyn_dagster.keys import KeyArray


def held_by(path: Path, checksum: str, keys: KeyArray) -> npt.NDArray[np.bool_]:
    """Test ascending keys (``uint64[n]``) for membership in a written set, ``bool[n]``.

    Raises ``CorruptFile`` for a file with another checksum, and for a damaged partition that could hold one of the keys.
    """
    search = _Search(TrainingSetFile(path, checksum))
    held = np.zeros(len(keys), dtype=bool)
    at = 0
    while search.n and at < len(keys):
        number = search.partition_of(int(keys[at]))
        part = search.keys(number)
        stop = int(np.searchsorted(keys, part[-1], side="right"))
        if stop > at:
            held[at:stop] = part[np.searchsorted(part, keys[at:stop])] == keys[at:stop]
            at = stop
        elif number + 1 < search.n:
            # Keys between two partitions are in neither.
            at = int(np.searchsorted(keys, search.keys(number + 1)[0]))
        else:
            break
    return held


class _Search:
    """Partitions of a file, each verified once."""

    def __init__(self, file: TrainingSetFile) -> None:
        self._file, self._read = file, dict[int, KeyArray]()
        self.n = len(file.sizes) if file.sizes.sum() else 0

    def keys(self, number: int) -> KeyArray:
        """Keys of a partition, verified."""
        if number not in self._read:
            self._read[number] = self._file.read(number).keys
        return self._read[number]

    def partition_of(self, key: int) -> int:
        """Number of the last partition that begins at or below a key; the first for a key below all."""
        low, high = 0, self.n - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._file.first_key(middle) <= key else (low, middle - 1)
        # The first keys were not verified: one that is damaged may have led astray, and verified partitions lead back.
        while low > 0 and key < self.keys(low)[0]:
            low -= 1
        while low + 1 < self.n and key > self.keys(low)[-1] and key >= self.keys(low + 1)[0]:
            low += 1
        return low
