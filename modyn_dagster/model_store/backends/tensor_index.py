"""Index of tensors: hints of which model holds a tensor, in an append-only file or one file per addition.

Each hint is checked against the header of the model before use. Losing hints loses only the sharing of tensors with models
saved before; ``rebuild`` makes them again.
"""

import fcntl
import os
import re
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path, PurePath
from typing import Final, Protocol

from modyn_dagster.errors import CorruptFile, UnknownModel
from modyn_dagster.model_store.backends.folder import Folder, LocalFolder
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.format.model_file import StoredModel
from modyn_dagster.storage import atomic_file

#: Bytes of an entry: the hash of a tensor and the id of a model.
ENTRY_BYTES: Final = 64
_FILE: Final = "tensors.index"
_FOLDER: Final = "tensors"
_NAME: Final = re.compile(r"[0-9a-f]{16}")
_MAX_BYTES: Final = 64 << 20


class Hints(Protocol):
    """Store of entries of ``ENTRY_BYTES``."""

    def read_new(self) -> tuple[bytes, bool]:
        """Entries added since the last call, also by others, and whether these replace all earlier ones."""

    def add(self, entries: bytes) -> None:
        """Add entries."""

    def replace(self, entries: bytes) -> None:
        """Replace all entries."""


class LocalHints:
    """Hints in one file, which is only appended to; the next writer fills up a torn entry."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_up_to = 0
        self._inode = 0

    def read_new(self) -> tuple[bytes, bool]:
        """Appended entries, or all entries of a replaced file."""
        try:
            with open(self._path, "rb") as file:
                status = os.fstat(file.fileno())
                is_another = status.st_ino != self._inode or status.st_size < self._read_up_to
                if is_another:
                    self._inode, self._read_up_to = status.st_ino, 0
                # A file of any size must not fill the memory: only the newest entries are read.
                self._read_up_to = max(self._read_up_to, status.st_size - status.st_size % ENTRY_BYTES - _MAX_BYTES)
                file.seek(self._read_up_to)
                content = file.read(_MAX_BYTES + ENTRY_BYTES)
        except FileNotFoundError:
            return b"", False
        whole = len(content) - len(content) % ENTRY_BYTES
        self._read_up_to += whole
        return content[:whole], is_another

    def add(self, entries: bytes) -> None:
        """Append entries."""
        with open(self._path, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            torn = os.fstat(file.fileno()).st_size % ENTRY_BYTES
            file.write(bytes(-torn % ENTRY_BYTES) + entries)

    def replace(self, entries: bytes) -> None:
        """Write a new file in place of the old one."""
        with atomic_file(self._path) as file:
            file.write(entries)


class RemoteHints:
    """Hints in one file per ``add``; ``replace`` leaves a single file."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._seen: set[PurePath] = set()

    def read_new(self) -> tuple[bytes, bool]:
        """Entries of files that are new since the last call."""
        new = [path for path in self._files() if path not in self._seen]
        content = b"".join(map(self._content, new))
        self._seen.update(new)
        return content, False

    def add(self, entries: bytes) -> None:
        """Write one more file."""
        path = self._folder.root / _FOLDER / secrets.token_hex(8)
        with self._folder.writing(path) as file:
            file.write(entries)

    def replace(self, entries: bytes) -> None:
        """Write one file and remove the earlier ones."""
        before = self._files()
        self.add(entries)
        for path in before:
            self._folder.remove(path)

    def _files(self) -> list[PurePath]:
        return [path for path in self._folder.files(_FOLDER) if _NAME.fullmatch(path.name)]

    def _content(self, path: PurePath) -> bytes:
        try:
            with self._folder.open(path) as file:
                content = file.read(_MAX_BYTES)
        except FileNotFoundError:
            # Replaced in the meantime: hints may be lost.
            return b""
        return content[: len(content) - len(content) % ENTRY_BYTES]


def hints_in(folder: Folder) -> Hints:
    """Hints of the store in a folder."""
    return LocalHints(folder.root / _FILE) if isinstance(folder, LocalFolder) else RemoteHints(folder)


class TensorIndex:
    """Hints of one store, as far as they were read."""

    def __init__(self, hints: Hints) -> None:
        self._hints = hints
        self._holders: dict[bytes, bytes] = {}
        # Models that hints name but that could not be opened since the last refresh.
        self._missing: set[bytes] = set()

    def find(self, leaf: str, model_of: Callable[[ModelId], StoredModel]) -> ModelId | None:
        """Model whose file holds the tensor with this hash, or None."""
        holder = self._holders.get(bytes.fromhex(leaf))
        if holder is None or holder in self._missing:
            return None
        try:
            model = model_of(holder.hex())
        except (UnknownModel, CorruptFile):
            self._missing.add(holder)
            return None
        return model.id if leaf in model.own_tensors else None

    def refresh(self) -> None:
        """Read entries added since the last refresh, also by others."""
        self._missing.clear()
        content, begins_again = self._hints.read_new()
        if begins_again:
            self._holders = {}
        for start in range(0, len(content), ENTRY_BYTES):
            self._holders[content[start : start + ENTRY_BYTES // 2]] = content[start + ENTRY_BYTES // 2 : start + ENTRY_BYTES]

    def add(self, leaves: Iterable[str], model: ModelId) -> None:
        """Record that the file of ``model`` holds these tensors."""
        if entries := b"".join(bytes.fromhex(leaf) + bytes.fromhex(model) for leaf in leaves):
            self._hints.add(entries)

    def rebuild(self, entries: Iterable[tuple[str, ModelId]]) -> None:
        """Replace all hints by these pairs of tensor and model."""
        self._hints.replace(b"".join(bytes.fromhex(leaf) + bytes.fromhex(model) for leaf, model in entries))


#: Bytes of a tensor below which looking for it in other models costs more than it saves.
MIN_SHARED_BYTES: Final = 64 << 10

#: Search for a model that holds the tensor with a hash.
FindTensor = Callable[[str], ModelId | None]
