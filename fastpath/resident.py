"""Files copied into memory of the process: random rows then touch huge pages, and never the disk."""

import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from fastpath.errors import CorruptFile

#: Bytes of one read. A read lets go of the GIL once, and is stopped by a signal between two of them only.
_READ_BYTES: Final = 64 << 20


def resident_copy(path: Path | str, size: int) -> npt.NDArray[np.uint8]:
    """The bytes of a file in private anonymous memory, in huge pages where the kernel has them.

    The pages of a file's own mapping are small, so that random rows of several gigabytes miss the TLB at each row; this
    memory is counted to the process and is not given back under pressure.

    Args:
        path: the file, read once from its beginning to its end.
        size: its bytes.

    Returns:
        ``uint8[size]``, read-only.

    Raises:
        CorruptFile: the file is gone, cannot be read, or has another size.
    """
    path = Path(path)
    try:
        with open(path, "rb", buffering=0) as file:
            found = os.fstat(file.fileno()).st_size
            if found != size:
                raise CorruptFile(path, f"{size} bytes", f"{found} bytes")
            copy = _copy(file.fileno(), size)
    except OSError as error:
        raise CorruptFile(path, f"a file of {size} bytes", error.strerror or str(error)) from error
    if copy is None:
        raise CorruptFile(path, f"{size} bytes", "an earlier end: it was cut short meanwhile")
    return copy


def _copy(descriptor: int, size: int) -> npt.NDArray[np.uint8] | None:
    # None: the file ended before `size` bytes.
    if size == 0:
        return _read_only(b"")
    # Python's default, a shared mapping, is backed by shmem, which gets no huge pages from this advice.
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without huge pages: the copy works, slower
        memory.madvise(mmap.MADV_HUGEPAGE)
    os.posix_fadvise(descriptor, 0, size, os.POSIX_FADV_SEQUENTIAL)
    done = 0
    with memoryview(memory) as view:
        while done < size:
            count = os.preadv(descriptor, [view[done : done + _READ_BYTES]], done)
            if count == 0:
                return None
            done += count
    return _read_only(memory)


def _read_only(memory: mmap.mmap | bytes) -> npt.NDArray[np.uint8]:
    array = np.frombuffer(memory, dtype=np.uint8)
    array.flags.writeable = False
    return array
