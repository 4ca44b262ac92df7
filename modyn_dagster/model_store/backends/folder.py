"""Where the files of a store are: what can be done to them, and how a local folder does it.

A file appears as a whole or not at all, and whoever removes something keeps savers from relying on it. A local folder has the
operating system's renames and locks for that; ``remote.py`` says how other places do without.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePath
from typing import Any, BinaryIO, Final, Protocol

from modyn_dagster.model_store.backends import reservations
from modyn_dagster.model_store.backends.reservations import Notices
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.storage import atomic_file, local_folder

# Of temporary names beside models, documents and hints.
_PLACES: Final = ("[0-9a-f][0-9a-f]/.*.tmp", "documents/[0-9a-f][0-9a-f]/.*.tmp", ".tensors.index.*.tmp")


class Folder(Protocol):
    """The files of one store; paths begin with ``root``."""

    @property
    def root(self) -> PurePath:
        """What all paths begin with; as text it holds no password."""

    def files(self, below: str = "") -> Sequence[PurePath]:
        """All files, or those below a folder."""

    def size(self, path: PurePath) -> int | None:
        """Bytes of a file; None when it is not there."""

    def open(self, path: PurePath) -> BinaryIO:
        """To read a part of it, such as its header. ``FileNotFoundError`` when it is not there, here and below."""

    def descriptor(self, path: PurePath) -> int:
        """An open file with all of its bytes, for many threads to read."""

    def writing(self, path: PurePath) -> AbstractContextManager[BinaryIO]:
        """The file appears when the block ends without an error. ``WriteFailed`` when it cannot be written."""

    def remove(self, path: PurePath) -> None:
        """If it is there."""

    def adding(self) -> AbstractContextManager[None]:
        """While models are read or added."""

    def removing(self, model: ModelId | None = None) -> AbstractContextManager[None]:
        """While a model, or what nobody needs, is removed."""

    def turn(self, path: PurePath) -> AbstractContextManager[None]:
        """While a file is committed whose folder is there: others wait who commit it, too, where there are locks."""

    def leftovers(self, older_than: float) -> Sequence[PurePath]:
        """What killed writers left behind; ``older_than`` seconds where nobody can be kept from writing now."""

    def removable(self, path: PurePath, older_than: float) -> bool:
        """Whether no writer of now can have written it."""

    @property
    def notices(self) -> Notices | None:
        """How savers and removers find out about each other; None where nothing is removed while somebody is ``adding``."""


class LocalFolder:
    """A folder of this machine: files are renamed into place, and savers and removers lock it."""

    notices = None

    def __init__(self, root: Path) -> None:
        self.root = root

    def files(self, below: str = "") -> list[PurePath]:
        """All files, or those below a folder."""
        return [Path(folder, name) for folder, _, names in os.walk(self.root / below) for name in names]

    def size(self, path: PurePath) -> int | None:
        """Bytes of a file; None when it is not there."""
        return Path(path).stat().st_size if Path(path).is_file() else None

    def open(self, path: PurePath) -> BinaryIO:
        """The file itself."""
        return open(path, "rb")

    def descriptor(self, path: PurePath) -> int:
        """Of the file itself."""
        return os.open(path, os.O_RDONLY)

    def writing(self, path: PurePath) -> AbstractContextManager[BinaryIO]:
        """Under a temporary name, synced and renamed."""
        return atomic_file(Path(path))

    def remove(self, path: PurePath) -> None:
        """If it is there."""
        Path(path).unlink(missing_ok=True)

    def adding(self) -> AbstractContextManager[None]:
        """A lock that many share."""
        return reservations.shared(self.root)

    def removing(self, model: ModelId | None = None) -> AbstractContextManager[None]:
        """The lock for one alone."""
        return reservations.alone(self.root)

    def turn(self, path: PurePath) -> AbstractContextManager[None]:
        """By a lock on its folder."""
        return reservations.alone(Path(path).parent)

    def leftovers(self, older_than: float) -> list[PurePath]:
        """Files with temporary names, where a store has files: the folder may hold others' as well."""
        return [path for place in _PLACES for path in self.root.glob(place) if path.is_file()]

    def removable(self, path: PurePath, older_than: float) -> bool:
        """By the lock."""
        return True


def open_folder(root: PurePath | str, options: Mapping[str, Any]) -> Folder:
    """A path, or a URL: ``file://`` is a local folder, any other what fsspec makes of it with these options."""
    local = local_folder(root) if isinstance(root, str) else root
    if isinstance(local, Path):
        return LocalFolder(local)
    # Imported here: few stores are remote.
    from modyn_dagster.model_store.backends.remote import RemoteFolder

    return RemoteFolder(str(root), options)
