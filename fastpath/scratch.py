"""Memory that a request works in, kept for the next one."""

import numpy as np
import numpy.typing as npt

from fastpath._resolve import Resolver


class Scratch:
    """Places of the keys of one piece, and the files they lie in. For one thread at a time.

    Attributes:
        resolver: the kernel that fills it.
        file, offset, length: by key; ``reserve`` makes them long enough.
    """

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.file = np.empty(0, dtype=np.int32)
        self.offset = np.empty(0, dtype=np.int64)
        self.length = np.empty(0, dtype=np.int64)
        self._marks = np.zeros(0, dtype=np.uint8)
        self._touched = np.empty(0, dtype=np.int32)

    def reserve(self, keys: int, files: int) -> None:
        """Room for so many keys and file ids; what is there of marks stays."""
        if keys > len(self.file):
            self.file = np.empty(keys, dtype=np.int32)
            self.offset, self.length = np.empty((2, keys), dtype=np.int64)
        if files > len(self._marks):
            marks, touched = np.zeros(files, dtype=np.uint8), np.empty(files, dtype=np.int32)
            n = self.resolver.n_touched
            marks[: len(self._marks)], touched[:n] = self._marks, self._touched[:n]
            self._marks, self._touched = marks, touched
            self.resolver.make_room(marks, touched)

    @property
    def touched(self) -> npt.NDArray[np.int32]:
        """The files that the keys lie in, and the indexes that were read for them."""
        return self._touched[: self.resolver.n_touched]
