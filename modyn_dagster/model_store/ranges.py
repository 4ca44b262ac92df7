"""A file that is read by ranges, as a file object: only what is asked for is fetched."""

import io
import os
from collections.abc import Callable
from typing import Any, BinaryIO, Final, cast

#: Bytes from a place up to another.
Read = Callable[[int, int], bytes]

# What is fetched at least: all of a small model, and most headers.
_BUFFER: Final = 64 << 10


class _Ranges(io.RawIOBase):
    def __init__(self, read: Read, size: int) -> None:
        super().__init__()
        self._read, self._size, self._place = read, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._place = max(0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence])
        return self._place

    def readinto(self, buffer: Any) -> int:
        end = min(self._place + len(buffer), self._size)
        if end <= self._place:
            return 0
        found = self._read(self._place, end)
        buffer[: len(found)] = found
        self._place += len(found)
        return len(found)


def open_ranges(read: Read, size: int) -> BinaryIO:
    """A file of ``size`` bytes, read by ``read(start, end)``."""
    return cast("BinaryIO", io.BufferedReader(_Ranges(read, size), _BUFFER))
