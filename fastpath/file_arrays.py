"""What kernels know of files, one array per fact: they read them without a lock."""

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class FileArrays:
    """Facts by file id; a longer copy takes their place when files are added.

    Attributes:
        base: address of the mapping; 0 where the file is not mapped.
        size: in bytes, of what is mapped, or as the index says before that.
        path: address of the absolute path, for the kernel's own calls.
        inode, modified: what the file was when it was mapped, ``modified`` in nanoseconds.
        used: when it was last asked for, on the table's own clock.
        lasting: whether it is never unmapped.
    """

    base: npt.NDArray[np.uint64]
    size: npt.NDArray[np.int64]
    path: npt.NDArray[np.uint64]
    inode: npt.NDArray[np.uint64]
    modified: npt.NDArray[np.int64]
    used: npt.NDArray[np.int64]
    lasting: npt.NDArray[np.bool_]

    @classmethod
    def empty(cls, capacity: int) -> "FileArrays":
        """For so many files, none of which is mapped."""
        base, path, inode = np.zeros((3, capacity), dtype=np.uint64)
        size, modified, used = np.zeros((3, capacity), dtype=np.int64)
        return cls(base, size, path, inode, modified, used, np.zeros(capacity, dtype=np.bool_))

    def grown(self, capacity: int) -> "FileArrays":
        """A copy with room for more."""
        longer = FileArrays.empty(capacity)
        for field in fields(self):
            getattr(longer, field.name)[: len(self.base)] = getattr(self, field.name)
        return longer
