"""Arrow files parsed without showing Arrow the mapped memory: a file that is cut short under it would end the process.

Arrow gets copies of the metadata, made by a kernel that survives a missing page. In place of the values it gets untouched memory
of the same size, whose pages the system never allocates. The place of an array in that memory gives its place in the file.
"""

import atexit
import ctypes
import io
import time
import weakref
from collections import deque
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fastpath.array_types import address_of
from fastpath.kernels._take import copy_out

#: Errors that Arrow raises for malformed bytes.
ARROW_ERRORS: Final = (pa.ArrowException, OSError, ValueError, TypeError, LookupError, OverflowError, MemoryError)

_CONTINUATION: Final = b"\xff\xff\xff\xff"
_PREFIX: Final = 8


class Part(NamedTuple):
    """Part of the file that blank memory stands for: address of the memory, offset in the file, and length."""

    address: int
    offset: int
    n_bytes: int


class _Blank(mmap):
    """Memory in place of a part of the file, known by its address.

    It is forgotten just before it is unmapped: from then on the next part may get the same address, in another thread. A
    finalizer of the array over it would come too late: NumPy 2 lets go of an array's memory before it calls the finalizers.
    """

    _parts: dict[int, Part] | None = None
    _address = 0

    def stand_for(self, part: Part, parts: dict[int, Part]) -> None:
        """Enter a part of the file, at this memory's address, among the known parts."""
        self._parts, self._address = parts, part.address
        parts[part.address] = part

    def __del__(self) -> None:
        if self._parts is not None:
            del self._parts[self._address]


class _Opening:
    """Arrow file opened not long ago, and what Arrow's threads may still hold of it.

    Arrow reads the end of a file in a thread of its own, which drops its references a moment after the file is open, or found to
    be damaged. A thread that drops the last one waits for the interpreter, and an interpreter that exits ends such threads, and
    with them the process. So the files opened last are kept, emptied, and never deallocated, and an exit waits for the bytes.
    """

    def __init__(self, file: pa.PythonFile) -> None:
        self._file = file
        self.reader: pa.RecordBatchFileReader | None = None
        self._memory: list[npt.NDArray[np.uint8]] = []
        self._views: list[weakref.ref[npt.NDArray[np.uint8]]] = []

    def hand_out(self, memory: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """View for Arrow, whose end frees nothing: who frees a map lets go of the interpreter, and must then wait for it."""
        view = memory.view()
        self._memory.append(memory)
        self._views.append(weakref.ref(view))
        return view

    def is_settled(self) -> bool:
        """True once Arrow holds no bytes but the footer, which a reader keeps."""
        return sum(view() is not None for view in self._views) <= (self.reader is not None)


_opened: Final = deque[_Opening](maxlen=256)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_opened))


@atexit.register
def _settle() -> None:
    latest = time.monotonic() + 1
    for opening in list(_opened):
        while not opening.is_settled() and time.monotonic() < latest:
            time.sleep(1e-4)


class Skeleton(io.RawIOBase):
    """Mapped file in the form that Arrow may read.

    In an Arrow *file* record batches are requested whole, metadata first; in a *stream* the metadata come alone, after their
    length. Arrow requests bytes by ``read`` and ``read_buffer``, as ``pyarrow.PythonFile`` describes. Both raise ``OSError`` for
    a file that was cut short.

    Args:
        mapped: buffer of the mapped file.
        is_stream: whether the file is an Arrow stream.
        start: byte at which reading begins.

    Attributes:
        n_read: bytes requested so far. A footer may name one part of the file thousands of times.
        opening: the file while Arrow opens it.
        parts: parts that memory stands for now, by its address.
    """

    def __init__(self, mapped: Any, *, is_stream: bool, start: int = 0) -> None:
        super().__init__()
        self._bytes = np.frombuffer(mapped, dtype=np.uint8)
        self._is_stream, self._at = is_stream, start
        self._announced = -1
        self.n_read = 0
        self.opening: _Opening | None = None
        self.parts: dict[int, Part] = {}

    def release(self) -> None:
        """Release the mapping; Arrow may still hold this object."""
        self._bytes = np.empty(0, dtype=np.uint8)

    def view(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Read-only view of the map for an array of Arrow's. ``ValueError`` for an array from elsewhere."""
        address = address_of(values)
        for part in list(self.parts.values()):
            first = address - part.address
            if 0 <= first <= part.n_bytes - values.nbytes:
                return np.frombuffer(self._bytes.data, dtype=values.dtype, count=len(values), offset=part.offset + first)
        raise ValueError("values that do not lie in the file as they are")

    def real(self, array: pa.Array) -> pa.Array:
        """The array over the bytes of the file, in place of the memory that stands for them.

        Validate it before it is used: whoever wrote the file decided what it holds. ``ValueError`` for values that do not lie in
        the file as they are, such as compressed ones, and for impossible lengths.
        """
        array.validate()
        children = [self.real(array.values)] if pa.types.is_fixed_size_list(array.type) else []
        own = array.buffers()[: 1 if children else None]
        buffers = [None if buffer is None else pa.py_buffer(self._real_bytes(buffer)) for buffer in own]
        return pa.Array.from_buffers(array.type, len(array), buffers, offset=array.offset, children=children or None)

    def _real_bytes(self, buffer: pa.Buffer) -> npt.NDArray[np.uint8]:
        return self.view(np.frombuffer(buffer, dtype=np.uint8)) if buffer.size else np.empty(0, dtype=np.uint8)

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Offset of the next byte."""
        return self._at

    def size(self) -> int:
        """Bytes of the file."""
        return len(self._bytes)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a byte."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size()}[whence]
        return self._at

    def read(self, n: int = -1) -> bytes:
        """Private copy of the next bytes."""
        part = self._next(n)
        content = self._copied(part, np.empty(len(part), dtype=np.uint8), len(part)).tobytes()
        self._announced = int.from_bytes(content, "little") if len(content) == 4 else -1
        return content

    def read_buffer(self, n: int = -1) -> pa.Buffer | npt.NDArray[np.uint8]:
        """Copy of the metadata among the next bytes, with untouched memory in place of the values."""
        at, part = self._at, self._next(n)
        if len(part) == 0:
            return pa.py_buffer(b"")
        blank = _Blank(-1, len(part), MAP_PRIVATE | MAP_ANONYMOUS)
        memory = np.frombuffer(blank, dtype=np.uint8)
        self._copied(part, memory, self._n_metadata(part))
        blank.stand_for(Part(address_of(memory), at, len(part)), self.parts)
        return pa.py_buffer(memory) if self.opening is None else self.opening.hand_out(memory)

    def _next(self, n: int) -> npt.NDArray[np.uint8]:
        part = self._bytes[self._at :] if n < 0 else self._bytes[self._at : self._at + n]
        self._at += len(part)
        self.n_read += len(part)
        return part

    def _n_metadata(self, part: npt.NDArray[np.uint8]) -> int:
        if self._is_stream:
            return len(part) if len(part) == self._announced else 0
        prefix = self._copied(part, np.zeros(_PREFIX, dtype=np.uint8), min(_PREFIX, len(part))).tobytes()
        if not prefix.startswith(_CONTINUATION):
            return len(part)
        return min(_PREFIX + int.from_bytes(prefix[4:], "little"), len(part))

    def _copied(self, part: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8], n: int) -> npt.NDArray[np.uint8]:
        if n and copy_out(address_of(part), out[:n]):
            raise OSError("a file that was cut short while it was read")
        return out


def open_arrow_file(owner: object, skeleton: Skeleton) -> pa.RecordBatchFileReader:
    """Reader of an Arrow *file*, released with its owner."""
    weakref.finalize(owner, skeleton.release).atexit = False
    file = pa.PythonFile(skeleton, mode="r")
    opening = skeleton.opening = _Opening(file)
    _opened.append(opening)
    try:
        opening.reader = pa.ipc.open_file(file)
    finally:
        skeleton.opening = None
    return opening.reader
