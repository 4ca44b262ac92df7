"""Mapped files: verified read-only mappings, and copies in huge pages of the process."""

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

from fastpath.copies import copies_at
from fastpath.errors import CorruptFile
from fastpath.kernels._files import MappedFile

CHECKSUM_BYTES: Final = 16

_CHUNK: Final = 1 << 20
MAX_REMEMBERED: Final = 100_000
#: Checksums computed in this process, by identity of the file: several stores read the same shards.
verified_checksums: Final[dict[tuple[int, ...], str]] = {}


class Version(NamedTuple):
    """Version of a file: any change after mapping shows in one of these."""

    inode: int
    size: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected state of a file: size, checksum, and the mtime at which it had them; None for an unknown value.

    Without an mtime, or when the file has another one, its content is read once to compare the checksum (hex BLAKE2b, 16
    bytes): a file restored from a backup is still the same.
    """

    path: Path
    size: int | None
    checksum: str | None
    modified_ns: int | None = None


def open_verified(expected: Expected) -> tuple[MappedFile, Version]:
    """Map a file. Raises ``CorruptFile`` for a missing file, or one that is not as expected."""
    try:
        descriptor = open_descriptor(expected.path, expected.checksum)
    except OSError as error:
        kind = "a file" if expected.size is None else f"a file of {expected.size} bytes"
        raise CorruptFile(expected.path, kind, error.strerror or str(error)) from error
    try:
        status = os.fstat(descriptor)
        _check(expected, descriptor, status)
        size = status.st_size
        return MappedFile(descriptor, size), Version(status.st_ino, size, status.st_mtime_ns)
    finally:
        os.close(descriptor)


def open_descriptor(path: Path, checksum: str | None = None) -> int:
    """Open a file for reading; a copy that is missing is fetched, and compared with the checksum.

    A pipe in its place is opened without waiting for a writer.
    """
    if (copies := copies_at(path)) is not None:
        return copies.open(path, checksum)
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def checksum_of(content: bytes) -> str:
    """Checksum of a file's content: hex BLAKE2b of 16 bytes."""
    return hashlib.blake2b(content, digest_size=CHECKSUM_BYTES).hexdigest()


def _check(expected: Expected, descriptor: int, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise CorruptFile(expected.path, "a regular file", "a folder or a device")
    if expected.size is not None and status.st_size != expected.size:
        raise CorruptFile(expected.path, f"{expected.size} bytes, as when it was ingested", f"{status.st_size} bytes")
    if expected.checksum is None or status.st_mtime_ns == expected.modified_ns:
        return
    checksum = _checksum(expected.path, descriptor, status)
    if checksum != expected.checksum:
        raise CorruptFile(expected.path, f"checksum {expected.checksum}, as when it was ingested", checksum)


def require_checksum(expected: Expected) -> None:
    """Read a file, whatever is known of it. Raises ``CorruptFile`` unless it has the expected checksum."""
    try:
        with open(expected.path, "rb", buffering=0) as file:
            found = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=CHECKSUM_BYTES)).hexdigest()
    except OSError as error:
        raise CorruptFile(expected.path, f"checksum {expected.checksum}", error.strerror or str(error)) from error
    if expected.checksum is not None and found != expected.checksum:
        remedy = "; restore the file from a backup, or replace the batch"
        raise CorruptFile(expected.path, f"checksum {expected.checksum}, as when it was ingested", found + remedy)


def _checksum(path: Path, descriptor: int, status: os.stat_result) -> str:
    identity = _identity(status)
    checksum = verified_checksums.get(identity)
    if checksum is None:
        digest = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
        while chunk := os.read(descriptor, _CHUNK):
            digest.update(chunk)
        if _identity(os.fstat(descriptor)) != identity:
            raise CorruptFile(path, "a file that nobody writes", "it changed while it was read")
        if len(verified_checksums) >= MAX_REMEMBERED:
            verified_checksums.clear()
        checksum = verified_checksums[identity] = digest.hexdigest()
    return checksum


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


#: Bytes of one read, which releases the GIL once. Signals are handled between two reads only.
_READ_BYTES: Final = 64 << 20


def resident_copy(path: Path | str, size: int) -> npt.NDArray[np.uint8]:
    """Bytes of a file in private anonymous memory, in huge pages where the kernel has them.

    The pages of a file's own mapping are small, so random rows of several gigabytes miss the TLB at each row. This memory counts
    to the process and is not given back under memory pressure.

    Args:
        path: file to read once from beginning to end.
        size: expected bytes.

    Returns:
        ``uint8[size]``, read-only.

    Raises:
        CorruptFile: the file is missing, cannot be read, or has another size.
    """
    path = Path(path)
    try:
        with open(path, "rb", buffering=0) as file:
            actual = os.fstat(file.fileno()).st_size
            if actual != size:
                raise CorruptFile(path, f"{size} bytes", f"{actual} bytes")
            copy = _copy(file.fileno(), size)
    except OSError as error:
        raise CorruptFile(path, f"a file of {size} bytes", error.strerror or str(error)) from error
    if copy is None:
        raise CorruptFile(path, f"{size} bytes", "an earlier end: it was cut short meanwhile")
    return copy


def _copy(descriptor: int, size: int) -> npt.NDArray[np.uint8] | None:
    # Returns None when the file ends before `size` bytes.
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
