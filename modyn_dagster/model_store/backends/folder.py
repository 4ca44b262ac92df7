"""Folders of model files: the protocol, and its implementation by a local folder.

A file appears as a whole or not at all, and a removal excludes savers that rely on the removed model. A local folder has the
operating system's renames and locks for that; ``remote.py`` does without them.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePath
from typing import Any, BinaryIO, Final, Protocol

from modyn_dagster.durability.names import settle
from modyn_dagster.model_store.backends.reservations import Files, Reservations, exclusive, shared
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.storage import atomic_file, local_folder

# Patterns of temporary names beside models, documents and hints.
_TEMPORARY: Final = ("[0-9a-f][0-9a-f]/.*.tmp", "documents/[0-9a-f][0-9a-f]/.*.tmp", ".tensors.index.*.tmp")


class Folder(Files, Protocol):
    """Files of one store; paths begin with ``root``."""

    def size(self, path: PurePath) -> int | None:
        """Bytes of a file; None for a missing file."""

    def descriptor(self, path: PurePath) -> int:
        """Descriptor of a file, for many threads to read. ``FileNotFoundError`` for a missing file."""

    def settle(self, path: PurePath) -> None:
        """Let a file, or its removal, survive a power cut, although who made the change may have been killed right after it."""

    def shared_lock(self) -> AbstractContextManager[None]:
        """Lock for reading or adding models, held by any number at once."""

    def removal(self, *models: ModelId) -> AbstractContextManager[None]:
        """Exclusive lock, or reservations, for removing models or unneeded files."""

    def commit_lock(self, path: PurePath) -> AbstractContextManager[None]:
        """Lock for committing a file in an existing folder; without effect where there are no locks."""

    def leftovers(self, older_than: float) -> Sequence[PurePath]:
        """Files that killed writers left behind; older than that many seconds where there are no locks."""

    @property
    def reservations(self) -> Reservations | None:
        """Reservations of savers and removers; None where locks exclude removal during ``shared_lock``."""


class LocalFolder:
    """Folder of this machine: files are renamed into place, and savers and removers lock the folder."""

    reservations = None

    def __init__(self, root: Path) -> None:
        self.root = root

    def files(self, below: str = "") -> list[PurePath]:
        """All files, or those below a folder."""
        return [Path(folder, name) for folder, _, names in os.walk(self.root / below) for name in names]

    def size(self, path: PurePath) -> int | None:
        """Bytes of a file; None for a missing file."""
        return Path(path).stat().st_size if Path(path).is_file() else None

    def open(self, path: PurePath) -> BinaryIO:
        """Open the file itself."""
        return open(path, "rb")

    def descriptor(self, path: PurePath) -> int:
        """Descriptor of the file itself."""
        return os.open(path, os.O_RDONLY)

    def writing(self, path: PurePath) -> AbstractContextManager[BinaryIO]:
        """Write under a temporary name, sync, and rename."""
        return atomic_file(Path(path))

    def remove(self, path: PurePath) -> None:
        """Remove a file, if it exists."""
        Path(path).unlink(missing_ok=True)

    def settle(self, path: PurePath) -> None:
        """Sync the folder of the file, if there is one."""
        settle(Path(path).parent)

    def shared_lock(self) -> AbstractContextManager[None]:
        """Shared lock on the folder."""
        return shared(self.root)

    def removal(self, *models: ModelId) -> AbstractContextManager[None]:
        """Exclusive lock on the folder."""
        return exclusive(self.root)

    def commit_lock(self, path: PurePath) -> AbstractContextManager[None]:
        """Exclusive lock on the folder of the file."""
        return exclusive(Path(path).parent)

    def leftovers(self, older_than: float) -> list[PurePath]:
        """Files with temporary names beside files of the store: the folder may hold unrelated files."""
        return [path for pattern in _TEMPORARY for path in self.root.glob(pattern) if path.is_file()]

    def removable(self, path: PurePath, older_than: float) -> bool:
        """True: the lock excludes writers."""
        return True


def open_folder(root: PurePath | str, options: Mapping[str, Any]) -> Folder:
    """Open a path or a URL: ``file://`` is a local folder, any other URL goes to fsspec with these options.

    So does ``file://`` with options: a folder that several machines share, whose locks they may not see of each other.
    """
    local = local_folder(root) if isinstance(root, str) else root
    if isinstance(local, Path) and not options:
        return LocalFolder(local)
    # Imported here: few stores are remote.
    from modyn_dagster.model_store.backends.remote import RemoteFolder

    return RemoteFolder(str(root), options)
