"""Files of a dataset: natural order of their paths, their states and versions, and permanent errors."""

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from typing import Any, BinaryIO, Final, NamedTuple

from fastpath.array_types import ByteArray
from fastpath.format.blocks import BlockHasher, block_digests
from modyn_dagster.errors import DataError
from modyn_dagster.values.digest import bytes_digest, new_hash

_CHUNK: Final = 1 << 20
#: Errors that last until the file is changed; any other OSError may pass.
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
    """Size in bytes, and nanoseconds since 1970 of the last change where known; a changed file has another state."""

    size: int
    mtime_ns: int | None


@dataclass(frozen=True, slots=True)
class FileVersion:
    """Version of a file that was read.

    Attributes:
        checksum: hex BLAKE2b, 16 bytes.
        blocks: little-endian digests of its blocks (``fastpath.format.blocks``).
    """

    state: FileState
    checksum: str
    blocks: bytes


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """Bytes of a file, with its state when it was opened."""

    path: str
    data: ByteArray
    state: FileState

    @property
    def checksum(self) -> str:
        """Hex BLAKE2b digest (16 bytes), as by ``digest.checksum_of``."""
        return bytes_digest(self.data.data)

    @property
    def version(self) -> FileVersion:
        """State and digests."""
        return FileVersion(self.state, self.checksum, block_digests(self.data).tobytes())


def version_of(file: BinaryIO | FileIO, state: FileState) -> tuple[FileVersion, int]:
    """Version of an open file with this state, and its size, read in chunks."""
    digest, blocks, size = new_hash(), BlockHasher(), 0
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
        blocks.update(chunk)
        size += len(chunk)
    return FileVersion(state, digest.hexdigest(), blocks.digests().tobytes()), size


def require_stable(path: str, unchanged: bool) -> None:
    """Raise ``DataError`` if a file changed while it was read."""
    if not unchanged:
        raise DataError(path, "changed while it was read; it is read again once it is at rest")


def regular_state(path: str, status: os.stat_result) -> FileState:
    """State of a regular file. Raises ``DataError`` for anything else."""
    if stat.S_ISDIR(status.st_mode):
        raise DataError(path, PERMANENT_ERRORS[errno.EISDIR])
    if not stat.S_ISREG(status.st_mode):
        raise DataError(path, "is not a regular file")
    return FileState(status.st_size, status.st_mtime_ns)


@contextmanager
def permanent_errors(path: str) -> Iterator[None]:
    """Turn an ``OSError`` that lasts until the file is changed into a ``DataError``."""
    try:
        yield
    except OSError as error:
        # fsspec raises subclasses of OSError without a number.
        number = error.errno or next((code for kind, code in _BY_CLASS.items() if isinstance(error, kind)), None)
        if number not in PERMANENT_ERRORS:
            raise
        raise DataError(path, PERMANENT_ERRORS[number]) from error


#: Beginning of the paths that stand for files whose names are not text. No other path of a file below a root begins so.
NOT_TEXT: Final = ".//"
#: Bytes of a name that are not UTF-8, as Python decodes them, and what Postgres cannot hold.
_NO_TEXT: Final = re.compile("[\ud800-\udfff\0]")


def path_as_text(path: str) -> str:
    r"""The path of a file as a batch can hold it: with escapes behind ``.//`` where a name is not UTF-8.

    >>> path_as_text("day_1.csv"), path_as_text("day_\udcff.csv")
    ('day_1.csv', './/day_\\xff.csv')
    """
    if _NO_TEXT.search(path) is None:
        return path
    return NOT_TEXT + _NO_TEXT.sub(lambda match: f"\\x{ord(match[0]) & 0xFF:02x}", path)


def require_text(path: str) -> None:
    """Raise ``DataError`` for a path that stands for a file whose name is not text: readers could not name it."""
    if path.startswith(NOT_TEXT):
        raise DataError(path, "the name of the file or of its folder is not UTF-8; rename it")


_DIGITS: Final = re.compile(r"([0-9]+)")


def natural_key(path: str) -> tuple[Any, ...]:
    """Sort key of a path: folder by folder, with runs of digits as numbers. Leading zeros decide last.

    >>> sorted(["b/part_10.csv", "b/part_2.csv", "a.csv"], key=natural_key)
    ['a.csv', 'b/part_2.csv', 'b/part_10.csv']
    """
    return tuple(_name_key(name) for name in path.split("/")), path


def _name_key(name: str) -> list[Any]:
    # Text and numbers alternate, text first, so parts of the same index have the same type.
    return [int(part) if i % 2 else part for i, part in enumerate(_DIGITS.split(name))]
