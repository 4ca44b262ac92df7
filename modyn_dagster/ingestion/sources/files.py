"""Files of a dataset: the natural order of their paths, their state and version, and refusals that last."""

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import DataError

ByteArray = npt.NDArray[np.uint8]

_CHUNK: Final = 1 << 20
#: Refusals that stay until somebody changes the file; any other OSError may pass.
PERMANENT_ERRORS: Final = {
    errno.ENOENT: "does not exist",
    errno.ENOTDIR: "does not exist",
    errno.EISDIR: "is a directory, expected a file",
    errno.EACCES: "cannot be read: permission denied",
    errno.EPERM: "cannot be read: operation not permitted",
    errno.ELOOP: "is a loop of symlinks",
    errno.ENAMETOOLONG: "has too long a name",
}
_BY_CLASS: Final = {FileNotFoundError: errno.ENOENT, IsADirectoryError: errno.EISDIR, PermissionError: errno.EACCES}


class FileState(NamedTuple):
    """What tells that a file changed: size in bytes, and nanoseconds since 1970 of its last change where known."""

    size: int
    mtime_ns: int | None


@dataclass(frozen=True, slots=True)
class FileVersion:
    """Which state of a file was read; ``checksum`` is the hex BLAKE2b digest (16 bytes) of its bytes."""

    state: FileState
    checksum: str


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """A file's bytes with the state it was in when it was opened."""

    path: str
    data: ByteArray
    state: FileState

    @property
    def checksum(self) -> str:
        """Hex BLAKE2b digest (16 bytes), as ``storage.checksum_of``."""
        return hashlib.blake2b(self.data.data, digest_size=16).hexdigest()

    @property
    def version(self) -> FileVersion:
        """State and checksum."""
        return FileVersion(self.state, self.checksum)


def digest_of(file: BinaryIO | FileIO) -> tuple[str, int]:
    """Checksum and size of what is left of a file, read piece by piece."""
    digest, size = hashlib.blake2b(digest_size=16), 0
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
        size += len(chunk)
    return digest.hexdigest(), size


def require_stable(path: str, unchanged: bool) -> None:
    """Raise ``DataError`` unless a file is still what it was when its reading began."""
    if not unchanged:
        raise DataError(path, "changed while it was read; it is taken up again once it is quiet")


def regular_state(path: str, found: os.stat_result) -> FileState:
    """The state of a regular file; ``DataError`` for anything else."""
    if stat.S_ISDIR(found.st_mode):
        raise DataError(path, PERMANENT_ERRORS[errno.EISDIR])
    if not stat.S_ISREG(found.st_mode):
        raise DataError(path, "is not a regular file")
    return FileState(found.st_size, found.st_mtime_ns)


@contextmanager
def permanent_errors(path: str) -> Iterator[None]:
    """``DataError`` instead of an ``OSError`` that stays until somebody changes the file; others pass."""
    try:
        yield
    except OSError as error:
        # fsspec raises the classes without a number.
        number = error.errno or next((code for kind, code in _BY_CLASS.items() if isinstance(error, kind)), None)
        if number not in PERMANENT_ERRORS:
            raise
        raise DataError(path, PERMANENT_ERRORS[number]) from error


_DIGITS: Final = re.compile(r"([0-9]+)")


def natural_key(path: str) -> tuple[Any, ...]:
    """Sort key: folder by folder, runs of digits as numbers; names that differ only in leading zeros are ordered as text.

    >>> sorted(["b/part_10.csv", "b/part_2.csv", "a.csv"], key=natural_key)
    ['a.csv', 'b/part_2.csv', 'b/part_10.csv']
    """
    return tuple(_name_key(name) for name in path.split("/")), path


def _name_key(name: str) -> list[Any]:
    # Text and numbers alternate, text first, so that equal places always hold the same type.
    parts = _DIGITS.split(name)
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]
