"""Where a dataset's files lie: a local folder, read in place, or an fsspec URL, whose bytes are copied."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from modyn_dagster.ingestion.loaded import FileState, FileVersion, LoadedFile
from modyn_dagster.ingestion.local_source import LocalSource
from modyn_dagster.ingestion.remote_source import RemoteSource

__all__ = ["FileState", "FileVersion", "LoadedFile", "LocalSource", "RemoteSource", "Source", "open_source"]

_LOCAL_SCHEMES: Final = ("file://", "local://")


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


def local_folder(root: str) -> Path | None:
    """The folder that a root is; None for what only fsspec knows."""
    for scheme in _LOCAL_SCHEMES:
        root = root.removeprefix(scheme)
    return None if "://" in root else Path(root)
