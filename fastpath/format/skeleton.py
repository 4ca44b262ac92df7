"""Arrow files parsed without Arrow ever looking at mapped memory: whoever cuts a file short under it would end the process.

Arrow reads what it is given; a kernel that survives a missing page copies what Arrow must see, which is the metadata. In place of
the values it is given untouched memory of the same size, whose pages the system never makes. Where an array lies in that
memory tells where it lies in the file.
"""

import ctypes
import io
import weakref
from collections import deque
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fastpath.kernels._take import copy_out

#: Arrow reads the end of a file in a thread of its own, which lets go of everything a moment after the file is open. Were it
#: the last to do so it would wait for the interpreter, and an interpreter that exits ends such threads, and so the process.
#: So the files that were opened last are kept, emptied, and never taken apart.
_opened: Final = deque[tuple[object, ...]](maxlen=256)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_opened))

_CONTINUATION: Final = b"\xff\xff\xff\xff"
_PREFIX: Final = 8


class _Blank(NamedTuple):
    """Memory that stands for a part of the file: its address, its first byte there, and its length."""

    address: int
    offset: int
    n_bytes: int


class Skeleton(io.RawIOBase):
    """A mapped file as Arrow may see it: ``mapped`` is its buffer, ``start`` the byte at which reading begins.

    In an Arrow *file* record batches are asked for whole, metadata first; in a *stream* the metadata come alone, after their
    length. Arrow asks it for bytes by ``read`` and ``read_buffer``, as ``pyarrow.PythonFile`` describes. Raises ``OSError``
    when the file was cut short.
    """

    def __init__(self, mapped: Any, *, is_stream: bool, start: int = 0) -> None:
        super().__init__()
        self._bytes = np.frombuffer(mapped, dtype=np.uint8)
        self._is_stream, self._at = is_stream, start
        self._announced = -1
        self._blanks: dict[int, _Blank] = {}

    def let_go(self) -> None:
        """The file is not needed any more; Arrow may still hold this."""
        self._bytes = np.empty(0, dtype=np.uint8)

    def place(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Where an array of Arrow's lies in the file: a read-only view of the map. ``ValueError`` when it is not of it."""
        address = values.__array_interface__["data"][0]
        for blank in list(self._blanks.values()):
            first = address - blank.address
            if 0 <= first <= blank.n_bytes - values.nbytes:
                return np.frombuffer(self._bytes.data, dtype=values.dtype, count=len(values), offset=blank.offset + first)
        raise ValueError("values that do not lie in the file as they are")

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The next byte."""
        return self._at

    def size(self) -> int:
        """Of the file."""
        return len(self._bytes)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size()}[whence]
        return self._at

    def read(self, n: int = -1) -> bytes:
        """A private copy of the next bytes."""
        part = self._next(n)
        found = self._copied(part, np.empty(len(part), dtype=np.uint8), len(part)).tobytes()
        self._announced = int.from_bytes(found, "little") if len(found) == 4 else -1
        return found

    def read_buffer(self, n: int = -1) -> pa.Buffer:
        """The same of metadata; values are left out."""
        at, part = self._at, self._next(n)
        if len(part) == 0:
            return pa.py_buffer(b"")
        blank = np.frombuffer(mmap(-1, len(part), MAP_PRIVATE | MAP_ANONYMOUS), dtype=np.uint8)
        self._copied(part, blank, self._n_metadata(part))
        address = blank.__array_interface__["data"][0]
        self._blanks[address] = _Blank(address, at, len(part))
        # Gone with the memory, which others may be given then.
        weakref.finalize(blank, self._blanks.pop, address).atexit = False
        return pa.py_buffer(blank)

    def _next(self, n: int) -> npt.NDArray[np.uint8]:
        part = self._bytes[self._at :] if n < 0 else self._bytes[self._at : self._at + n]
        self._at += len(part)
        return part

    def _n_metadata(self, part: npt.NDArray[np.uint8]) -> int:
        if self._is_stream:
            return len(part) if len(part) == self._announced else 0
        prefix = self._copied(part, np.zeros(_PREFIX, dtype=np.uint8), min(_PREFIX, len(part))).tobytes()
        if not prefix.startswith(_CONTINUATION):
            return len(part)
        return min(_PREFIX + int.from_bytes(prefix[4:], "little"), len(part))

    def _copied(self, part: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8], n: int) -> npt.NDArray[np.uint8]:
        if n and copy_out(part.__array_interface__["data"][0], out[:n]):
            raise OSError("it was cut short while it was read")
        return out


def open_arrow_file(owner: object, skeleton: Skeleton) -> pa.RecordBatchFileReader:
    """The reader of an Arrow *file*, which is let go of with its owner."""
    weakref.finalize(owner, skeleton.let_go).atexit = False
    file = pa.PythonFile(skeleton, mode="r")
    _opened.append((file,))
    reader = pa.ipc.open_file(file)
    _opened.append((file, reader))
    return reader
