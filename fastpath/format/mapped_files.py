"""Open files: verified read-only mappings, and copies in huge pages of the process."""

import hashlib
import mmap
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fastpath.errors import CorruptFile
from fastpath.kernels._files import MappedFile

_CHUNK: Final = 1 << 20
_REMEMBERED: Final = 100_000
#: Content that was hashed in this process: several stores read the same shards, and a look tells that one is unchanged.
_hashed: Final[dict[tuple[int, ...], str]] = {}


class Version(NamedTuple):
    """What tells that a file changed after it was mapped."""

    inode: int
    size: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class Expected:
    """What a file must be: its size, its checksum, and the mtime at which it had them.

    Without an mtime, or when the file has another, its content is read once to compare the checksum (hex BLAKE2b, 16 bytes):
    copied back from a backup it is still the same. None for what is not known.
    """

    path: Path
    size: int | None
    checksum: str | None
    modified_ns: int | None = None


def open_verified(expected: Expected) -> tuple[MappedFile, Version]:
    """Map a file. Raises ``CorruptFile`` when it is gone, or is not what it must be."""
    try:
        # A pipe in place of a file would wait for a writer for ever.
        descriptor = os.open(expected.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        what = "a file" if expected.size is None else f"a file of {expected.size} bytes"
        raise CorruptFile(expected.path, what, error.strerror or str(error)) from error
    try:
        found = os.fstat(descriptor)
        _check(expected, descriptor, found)
        size = found.st_size
        return MappedFile(descriptor, size), Version(found.st_ino, size, found.st_mtime_ns)
    finally:
        os.close(descriptor)


def _check(expected: Expected, descriptor: int, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise CorruptFile(expected.path, "a regular file", "a folder or a device")
    if expected.size is not None and found.st_size != expected.size:
        raise CorruptFile(expected.path, f"{expected.size} bytes, as when it was ingested", f"{found.st_size} bytes")
    if expected.checksum is None or found.st_mtime_ns == expected.modified_ns:
        return
    checksum = _checksum(expected.path, descriptor, found)
    if checksum != expected.checksum:
        raise CorruptFile(expected.path, f"checksum {expected.checksum}, as when it was ingested", checksum)


def _checksum(path: Path, descriptor: int, found: os.stat_result) -> str:
    identity = _identity(found)
    known = _hashed.get(identity)
    if known is None:
        digest = hashlib.blake2b(digest_size=16)
        while chunk := os.read(descriptor, _CHUNK):
            digest.update(chunk)
        if _identity(os.fstat(descriptor)) != identity:
            raise CorruptFile(path, "a file that nobody writes", "it changed while it was read")
        if len(_hashed) >= _REMEMBERED:
            _hashed.clear()
        known = _hashed[identity] = digest.hexdigest()
    return known


def _identity(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


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
