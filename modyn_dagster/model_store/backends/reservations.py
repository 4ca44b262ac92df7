"""Exclusion of savers and removers: locks on a local folder, reservations left as files elsewhere.

Locks are the operating system's, on the folder itself: savers share one, a remover holds it alone, and it ends with its holder.
Without locks each side leaves a reservation before it looks at the other's: ``going/<model>.<token>`` announces a removal,
``coming/<model>.<token>`` a commit of a model that needs those listed in the file. Of a saver and a remover who meet, one sees
the other's reservation, or the saver sees the model gone, or the remover sees the new one: docs/model_store.md goes through
the cases.
"""

import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path, PurePath
from typing import BinaryIO, Final, Protocol

from modyn_dagster.errors import StorageError
from modyn_dagster.model_store.format.hash_tree import ModelId

_GOING: Final = "going"
_COMING: Final = "coming"
#: Where notices are.
FOLDERS: Final = (_GOING, _COMING)

_ID: Final = re.compile(r"[0-9a-f]{64}")
_MAX_BYTES: Final = 16 << 20


class Files(Protocol):
    """What of a store's folder it takes."""

    @property
    def root(self) -> PurePath:
        """What all paths begin with."""

    def files(self, below: str = "") -> Sequence[PurePath]:
        """Those that were there before the call, and still are."""

    def open(self, path: PurePath) -> BinaryIO:
        """``FileNotFoundError`` when it is not there."""

    def writing(self, path: PurePath) -> AbstractContextManager[BinaryIO]:
        """Listings that begin after the block show the file."""

    def remove(self, path: PurePath) -> None:
        """If it is there."""

    def removable(self, path: PurePath, older_than: float) -> bool:
        """Whether it is known to be older than so many seconds."""


class Notices:
    """Those of one store."""

    def __init__(self, folder: Files) -> None:
        self._folder = folder

    @contextmanager
    def removing(self, model: ModelId) -> Iterator[None]:
        """Say that a model goes, for as long as the block takes."""
        notice = self._leave(_GOING, model, b"going\n")
        try:
            yield
        finally:
            self.withdraw(notice)

    def going(self) -> frozenset[ModelId]:
        """What is being removed, or was when its remover was killed."""
        return frozenset(_model_of(path) for path in self._folder.files(_GOING))

    def coming(self) -> frozenset[ModelId]:
        """What is about to be committed, or was when its saver was killed."""
        return frozenset(_model_of(path) for path in self._folder.files(_COMING))

    def announce(self, model: ModelId, needs: frozenset[ModelId]) -> PurePath:
        """Say that a model comes which needs others. It stands until ``withdraw``: also when whoever said so was killed."""
        return self._leave(_COMING, model, "\n".join(sorted(needs)).encode())

    def withdraw(self, notice: PurePath) -> None:
        """Nothing depends on it any more: one that cannot be removed now only makes others careful until ``gc`` does."""
        with suppress(StorageError):
            self._folder.remove(notice)

    def pending_on(self, model: ModelId, older_than: float) -> Sequence[ModelId]:
        """What is about to be committed and needs this model, unless that was said so many seconds ago."""
        found = []
        for path in self._folder.files(_COMING):
            with suppress(FileNotFoundError):
                if model in self._needs(path) and not self._folder.removable(path, older_than):
                    found.append(_model_of(path))
        return sorted(set(found))

    def _leave(self, kind: str, model: ModelId, content: bytes) -> PurePath:
        # Each with a name of its own: nobody takes back what another said of the same model.
        path = self._folder.root / kind / f"{model}.{secrets.token_hex(8)}"
        with self._folder.writing(path) as file:
            file.write(content)
        return path

    def _needs(self, path: PurePath) -> Sequence[ModelId]:
        with self._folder.open(path) as file:
            return _ID.findall(file.read(_MAX_BYTES).decode(errors="replace"))


def _model_of(path: PurePath) -> ModelId:
    return path.name.partition(".")[0]


@contextlib.contextmanager
def shared(folder: Path) -> Iterator[None]:
    """While models are added: nothing that exists goes away meanwhile."""
    with _locked(folder, fcntl.LOCK_SH):
        yield


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """While something is removed: nobody adds or removes meanwhile."""
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
