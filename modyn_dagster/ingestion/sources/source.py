"""Sources behind fsspec, and the choice between them and local folders."""

import errno
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

import fsspec
import numpy as np

from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.sources.files import (
    PERMANENT_ERRORS,
    FileState,
    FileVersion,
    LoadedFile,
    digest_of,
    permanent_errors,
    require_stable,
)
from modyn_dagster.ingestion.sources.local import LocalSource
from modyn_dagster.storage import local_folder


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
        with permanent_errors(path):
            return [self._relative(found) for found in self._fs.find(self._full(path))]

    def state(self, path: str) -> FileState:
        """Size, and time of last change where the store tells it."""
        with permanent_errors(path):
            info = self._fs.info(self._full(path))
            if info["type"] != "file":
                raise DataError(path, PERMANENT_ERRORS[errno.EISDIR])
            return FileState(int(info["size"]), self._mtime_ns(path))

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
            checksum, size = digest_of(file)
        require_stable(path, size == state.size)
        return FileVersion(state, checksum)

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


__all__ = ["FileState", "FileVersion", "LoadedFile", "LocalSource", "RemoteSource", "Source", "open_source"]


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

    def version(self, path: str) -> FileVersion:
        """State and checksum, read piece by piece: the file need not fit into memory."""


def open_source(root: str, storage_options: Mapping[str, Any]) -> Source:
    """``root`` is a local path or URL (``file://`` too: read in place) or any other URL that fsspec knows."""
    local = local_folder(root)
    return RemoteSource(root, storage_options) if local is None else LocalSource(local)
