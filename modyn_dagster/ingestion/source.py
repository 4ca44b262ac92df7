"""Where a dataset's files lie: a local folder, read in place, or an fsspec URL, whose bytes are copied."""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import fsspec
import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import DataError, StorageError
from modyn_dagster.storage import inside

ByteArray = npt.NDArray[np.uint8]

_LOCAL_SCHEMES: Final = ("file://", "local://")
#: Refusals that stay until somebody changes the file; any other OSError may pass.
_LASTING: Final = {
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
class LoadedFile:
    """A file's bytes with the state it was in when it was opened."""

    path: str
    data: ByteArray
    state: FileState

    @property
    def checksum(self) -> str:
        """Hex BLAKE2b digest (16 bytes), as ``storage.checksum_of``."""
        return hashlib.blake2b(self.data.data, digest_size=16).hexdigest()


class Source(Protocol):
    """The files of a dataset by their path relative to its root, with ``/`` between folders.

    What lasts (no such file, no permission, a path or symlink out of the root) raises ``DataError``, anything that may pass
    stays the ``OSError`` it was.
    """

    #: Whether samples are read where they lie.
    in_place: bool

    def files(self, pattern: str) -> list[str]:
        """Files a glob finds, in no particular order."""

    def folder(self, path: str) -> list[str]:
        """All files below a folder, in no particular order."""

    def state(self, path: str) -> FileState:
        """Size and time of last change."""

    def load(self, path: str) -> LoadedFile:
        """All bytes."""


def open_source(root: str, storage_options: Mapping[str, Any]) -> Source:
    """``root`` is a local path or URL (``file://`` too: read in place) or any other URL that fsspec knows."""
    for scheme in _LOCAL_SCHEMES:
        root = root.removeprefix(scheme)
    return RemoteSource(root, storage_options) if "://" in root else LocalSource(Path(root))


class LocalSource:
    """A folder of this machine."""

    in_place = True

    def __init__(self, root: Path) -> None:
        self.root = root

    def files(self, pattern: str) -> list[str]:
        """What a glob finds except folders; a broken symlink is found, so that its batch can say so.

        Raises ``StorageError`` when the root is not there: an empty dataset and a missing disk must not look the same.
        """
        if not self.root.is_dir():
            raise StorageError(f"{self.root}: the root of the dataset is no folder; create it, mount it, or correct `root`")
        return [path.relative_to(self.root).as_posix() for path in self.root.glob(pattern) if not path.is_dir()]

    def folder(self, path: str) -> list[str]:
        """All files below a folder; symlinks to folders are not followed."""
        top = self.locate(path)
        with _lasting_refusals(path):
            below = [Path(folder, name) for folder, _, names in os.walk(top, onerror=_raise) for name in names]
        return [f"{path}/{file.relative_to(top).as_posix()}" for file in below]

    def state(self, path: str) -> FileState:
        """Size and mtime; only a regular file has them."""
        with _lasting_refusals(path):
            return _regular(path, self.locate(path).stat())

    def load(self, path: str) -> LoadedFile:
        """All bytes, read and not mapped: a file cut short while it is read is an error, not a fault."""
        state = self.state(path)
        with _lasting_refusals(path):
            data = np.fromfile(self.locate(path), dtype=np.uint8)
        if self.state(path) != state or len(data) != state.size:
            raise DataError(path, "changed while it was read; it is taken up again once it is quiet")
        return LoadedFile(path, data, state)

    def locate(self, path: str) -> Path:
        """The absolute path; refused when it, or a symlink on its way, leaves the root."""
        try:
            return inside(self.root, path)
        except StorageError:
            raise DataError(path, "lies outside the dataset's root, or is a symlink that leaves it") from None
        except RuntimeError as error:  # pathlib's word for a loop of symlinks
            raise DataError(path, _LASTING[errno.ELOOP]) from error
        except ValueError as error:  # a null byte
            raise DataError(path, f"is not a path: {error}") from error


class RemoteSource:
    """A folder behind fsspec: S3, GCS, memory, …"""

    in_place = False

    def __init__(self, url: str, storage_options: Mapping[str, Any]) -> None:
        self._fs, base = fsspec.core.url_to_fs(url, **storage_options)
        self._base = base.rstrip("/")
        # fsspec hands out one object per URL and process; what it remembers of an earlier look may be old.
        self._fs.invalidate_cache()

    def files(self, pattern: str) -> list[str]:
        """Files a glob finds."""
        found = self._fs.glob(f"{self._base}/{pattern}", detail=True)
        return [self._relative(path) for path, info in found.items() if info["type"] == "file"]

    def folder(self, path: str) -> list[str]:
        """All files below a folder."""
        with _lasting_refusals(path):
            return [self._relative(found) for found in self._fs.find(self._full(path))]

    def state(self, path: str) -> FileState:
        """Size, and time of last change where the store tells it."""
        with _lasting_refusals(path):
            info = self._fs.info(self._full(path))
            if info["type"] != "file":
                raise DataError(path, _LASTING[errno.EISDIR])
            return FileState(int(info["size"]), self._mtime_ns(path))

    def load(self, path: str) -> LoadedFile:
        """All bytes."""
        state = self.state(path)
        with _lasting_refusals(path):
            data = np.frombuffer(self._fs.cat_file(self._full(path)), dtype=np.uint8)
        if len(data) != state.size:
            raise DataError(path, "changed while it was read; it is taken up again once it is quiet")
        return LoadedFile(path, data, state)

    def _mtime_ns(self, path: str) -> int | None:
        try:
            modified: datetime = self._fs.modified(self._full(path))
        except NotImplementedError:
            return None
        return round(modified.timestamp() * 1_000_000) * 1000

    def _full(self, path: str) -> str:
        parts = path.split("/")
        if path.startswith("/") or ".." in parts:
            raise DataError(path, "lies outside the dataset's root")
        return f"{self._base}/{path}"

    def _relative(self, path: str) -> str:
        return path.removeprefix(self._base).lstrip("/")


def _regular(path: str, found: os.stat_result) -> FileState:
    if stat.S_ISDIR(found.st_mode):
        raise DataError(path, _LASTING[errno.EISDIR])
    if not stat.S_ISREG(found.st_mode):
        raise DataError(path, "is not a regular file")
    return FileState(found.st_size, found.st_mtime_ns)


def _raise(error: OSError) -> None:
    raise error


@contextmanager
def _lasting_refusals(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # fsspec raises the classes without a number.
        number = error.errno or next((code for kind, code in _BY_CLASS.items() if isinstance(error, kind)), None)
        if number not in _LASTING:
            raise
        raise DataError(path, _LASTING[number]) from error
