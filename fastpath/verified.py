"""A file opened, compared with what it must be, and mapped."""

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from fastpath._files import MappedFile
from fastpath.errors import CorruptFile

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
