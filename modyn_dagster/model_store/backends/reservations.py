"""Exclusion of savers and removers: locks on a local folder, reservations left as files elsewhere.

Locks are the operating system's, on the folder itself: savers share one, a remover holds it exclusively, and it ends with the
process. Without locks each side leaves a reservation before it looks for those of the other: ``going/<model>.<token>``
announces a removal, ``coming/<model>.<token>`` the commit of a model that needs those listed in the file. When a saver and a
remover meet, one sees the other's reservation, or the saver finds the model gone, or the remover finds the new model:
docs/model_store.md has the proof.
"""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path, PurePath
from typing import BinaryIO, Final, Protocol

from modyn_dagster.errors import StorageError
from modyn_dagster.model_store.format.hash_tree import ID_PATTERN, ModelId

_REMOVALS: Final = "going"
_COMMITS: Final = "coming"
#: Folders of the reservations.
FOLDERS: Final = (_REMOVALS, _COMMITS)

_MAX_BYTES: Final = 16 << 20


class Files(Protocol):
    """File operations that reservations are made of."""

    @property
    def root(self) -> PurePath:
        """Beginning of all paths; the text holds no password."""

    def files(self, below: str = "") -> Sequence[PurePath]:
        """All files, or those below a folder: at least those that exist throughout the call."""

    def open(self, path: PurePath) -> BinaryIO:
        """Open a file to read a part of it, such as the header. ``FileNotFoundError`` for a missing file."""

    def writing(self, path: PurePath) -> AbstractContextManager[BinaryIO]:
        """File that appears, also in listings, when the block ends without an error; else ``WriteFailed``."""

    def remove(self, path: PurePath) -> None:
        """Remove a file, if it exists."""

    def removable(self, path: PurePath, older_than: float) -> bool:
        """True if no active writer can have written a file: it is known to be older than so many seconds."""


class Reservations:
    """Reservations of one store."""

    def __init__(self, folder: Files) -> None:
        self._folder = folder

    @contextmanager
    def removal(self, model: ModelId) -> Iterator[None]:
        """Announce the removal of a model for the duration of the block."""
        reservation = self._write(_REMOVALS, model, b"going\n")
        try:
            yield
        finally:
            self.withdraw(reservation)

    def removals(self) -> frozenset[ModelId]:
        """Models being removed, or whose remover was killed."""
        return frozenset(_model_of(path) for path in self._folder.files(_REMOVALS))

    def commits(self) -> frozenset[ModelId]:
        """Models about to be committed, or whose saver was killed."""
        return frozenset(_model_of(path) for path in self._folder.files(_COMMITS))

    def announce(self, model: ModelId, dependencies: frozenset[ModelId]) -> PurePath:
        """Announce the commit of a model that needs others; the reservation stands until ``withdraw``, even after a kill."""
        return self._write(_COMMITS, model, "\n".join(sorted(dependencies)).encode())

    def withdraw(self, reservation: PurePath) -> None:
        """Remove a reservation. One that cannot be removed now only makes others careful until ``gc`` removes it."""
        with suppress(StorageError):
            self._folder.remove(reservation)

    def pending_on(self, model: ModelId, older_than: float) -> Sequence[ModelId]:
        """Models about to be committed that need this one, by reservations younger than so many seconds."""
        pending = set()
        for path in self._folder.files(_COMMITS):
            with suppress(FileNotFoundError):
                if model in self._dependencies_in(path) and not self._folder.removable(path, older_than):
                    pending.add(_model_of(path))
        return sorted(pending)

    def _write(self, kind: str, model: ModelId, content: bytes) -> PurePath:
        # Unique names: nobody withdraws the reservation of another for the same model.
        path = self._folder.root / kind / f"{model}.{secrets.token_hex(8)}"
        with self._folder.writing(path) as file:
            file.write(content)
        return path

    def _dependencies_in(self, path: PurePath) -> Sequence[ModelId]:
        with self._folder.open(path) as file:
            return ID_PATTERN.findall(file.read(_MAX_BYTES).decode(errors="replace"))


def _model_of(path: PurePath) -> ModelId:
    return path.name.partition(".")[0]


@contextlib.contextmanager
def shared(folder: Path) -> Iterator[None]:
    """Shared lock on a folder: no model is removed meanwhile."""
    with _locked(folder, fcntl.LOCK_SH):
        yield


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Exclusive lock on a folder: no model is added or removed meanwhile."""
    with _locked(folder, fcntl.LOCK_EX):
        yield


@contextlib.contextmanager
def _locked(folder: Path, operation: int) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, operation)
        yield
    finally:
        os.close(descriptor)
