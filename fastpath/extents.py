"""Where samples lie in files: runs of equal distances, or one place for each."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Extents:
    """Runs of samples: run r is samples ``start[r]`` to ``start[r + 1]``, the i-th of them at ``offset[r] + i * stride[r]``.

    All are ``int64[runs]``, ``file`` ``int32[runs]``; ``start`` and ``stride`` are None when every sample is a run of its own.
    """

    file: npt.NDArray[np.int32]
    offset: Int64Array
    length: Int64Array
    start: Int64Array | None = None
    stride: Int64Array | None = None

    @classmethod
    def of(cls, file: npt.NDArray[np.int32], offset: Int64Array, length: Int64Array) -> Self:
        """The runs that places of single samples make: same file, same length, one right behind the other."""
        behind = (file[1:] == file[:-1]) & (length[1:] == length[:-1]) & (offset[1:] == offset[:-1] + length[:-1])
        start = np.flatnonzero(np.concatenate(([True], ~behind)))
        if len(start) >= len(file):
            return cls(file, offset, length)
        return cls(file[start], offset[start], length[start], start, length[start])

    def locate(self, positions: Int64Array) -> tuple[npt.NDArray[np.int32], Int64Array, Int64Array]:
        """File, offset and length of samples."""
        if self.start is None or self.stride is None:
            return self.file[positions], self.offset[positions], self.length[positions]
        run = np.searchsorted(self.start, positions, side="right") - 1
        offset = self.offset[run] + (positions - self.start[run]) * self.stride[run]
        return self.file[run], offset, self.length[run]
