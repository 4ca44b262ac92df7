"""Sources of a dataset's files: their protocol, folders behind fsspec, and the choice by the root's URL."""

import errno
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import IO, Any, Protocol

import fsspec
import numpy as np

from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.sources.files import (
    PERMANENT_ERRORS,
    FileState,
    FileVersion,
    LoadedFile,
    path_as_text,
    permanent_errors,
    require_stable,
    require_text,
    version_of,
)
from modyn_dagster.ingestion.sources.local import LocalSource
from modyn_dagster.storage import local_folder

__all__ = ["FileState", "FileVersion", "LoadedFile", "LocalSource", "RemoteSource", "Source", "open_source"]


class Source(Protocol):
    """Files of a dataset by their paths relative to its root, with ``/`` between folders.

    An error that lasts (no such file, no permission, a path or symlink that leaves the root) is a ``DataError``. One that may
    pass stays an ``OSError``.
    """

    #: True if readers may read samples from the source files; otherwise they are copied to shards.
    in_place: bool

    def files(self, pattern: str) -> list[str]:
        """Files that match a glob, in no particular order."""

    def folder(self, path: str) -> list[str]:
        """All files below a folder, in no particular order."""

    def state(self, path: str) -> FileState:
        """Size and time of last change."""

    def opened(self, path: str) -> AbstractContextManager[tuple[IO[bytes], FileState]]:
        """An open file that can be read in parts, and its state. Raises ``DataError`` if it changes meanwhile."""

    def load(self, path: str) -> LoadedFile:
        """All bytes."""

    def version(self, path: str) -> FileVersion:
        """State and checksum, read in chunks: the file need not fit into memory."""


class RemoteSource:
    """A folder behind fsspec: S3, GCS, memory and others.

    Args:
        url: of the folder.
        storage_options: for fsspec.
    """

    in_place = False

    def __init__(self, url: str, storage_options: Mapping[str, Any]) -> None:
        self._fs, base = fsspec.core.url_to_fs(url, **storage_options)
        self._base = base.rstrip("/")
        # fsspec caches one object per URL and process, and its listing may be out of date.
        self._fs.invalidate_cache()

    def files(self, pattern: str) -> list[str]:
        """Files that match a glob."""
        matches = self._fs.glob(f"{self._base}/{pattern}", detail=True)
        return [self._relative(path) for path, info in matches.items() if info["type"] == "file"]

    def folder(self, path: str) -> list[str]:
        """All files below a folder."""
        with permanent_errors(path):
            return [self._relative(file) for file in self._fs.find(self._full(path))]

    def state(self, path: str) -> FileState:
        """Size, and time of last change where the store records it."""
        with permanent_errors(path):
            info = self._fs.info(self._full(path))
            if info["type"] != "file":
                raise DataError(path, PERMANENT_ERRORS[errno.EISDIR])
            return FileState(int(info["size"]), self._mtime_ns(path))

    @contextmanager
    def opened(self, path: str) -> Iterator[tuple[IO[bytes], FileState]]:
        """Open a file; yields it with its state. Raises ``DataError`` if its size is another after the block."""
        state = self.state(path)
        with permanent_errors(path):
            with self._fs.open(self._full(path), "rb") as file:
                yield file, state
            require_stable(path, self.state(path).size == state.size)

    def load(self, path: str) -> LoadedFile:
        """All bytes."""
        state = self.state(path)
        with permanent_errors(path):
            data = np.frombuffer(self._fs.cat_file(self._full(path)), dtype=np.uint8)
        require_stable(path, len(data) == state.size)
        return LoadedFile(path, data, state)

    def version(self, path: str) -> FileVersion:
        """State and checksum."""
        state = self.state(path)
        with permanent_errors(path), self._fs.open(self._full(path), "rb") as file:
            version, size = version_of(file, state)
        require_stable(path, size == state.size)
        return version

    def _mtime_ns(self, path: str) -> int | None:
        try:
            modified: datetime = self._fs.modified(self._full(path))
        except NotImplementedError:
            return None
        return round(modified.timestamp() * 1_000_000) * 1000

    def _full(self, path: str) -> str:
        require_text(path)
        parts = path.split("/")
        if path.startswith("/") or ".." in parts:
            raise DataError(path, "lies outside the dataset's root")
        return f"{self._base}/{path}"

    def _relative(self, path: str) -> str:
        return path_as_text(path.removeprefix(self._base).lstrip("/"))


def open_source(root: str, storage_options: Mapping[str, Any]) -> Source:
    """Open a root: a local path or ``file://`` URL, which is read in place, or any other URL that fsspec supports."""
    local = local_folder(root)
    return RemoteSource(root, storage_options) if local is None else LocalSource(local)
