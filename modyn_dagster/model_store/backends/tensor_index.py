"""Index of tensors: hints of which model holds a tensor, in an append-only file or one file per addition.

Each hint is checked against the model's header before it is believed. Losing them loses only the sharing of tensors with models
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
from modyn_dagster.model_store.format.model_file import Stored
from modyn_dagster.storage import atomic_file

#: Hash of a tensor, id of a model.
ENTRY: Final = 64
_FILE: Final = "tensors.index"
_FOLDER: Final = "tensors"
_NAME: Final = re.compile(r"[0-9a-f]{16}")
_MAX_BYTES: Final = 64 << 20


class Hints(Protocol):
    """Entries of ``ENTRY`` bytes."""

    def new(self) -> tuple[bytes, bool]:
        """What was added since the last call, also by others, and whether all that was told before counts no more."""

    def add(self, entries: bytes) -> None:
        """Add some."""

    def replace(self, entries: bytes) -> None:
        """Begin again with these."""


class LocalHints:
    """One file. It is only appended to; a torn entry is filled up by the next writer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_up_to = 0
        self._inode = 0

    def new(self) -> tuple[bytes, bool]:
        """What was appended, or all of another file."""
        try:
            with open(self._path, "rb") as file:
                status = os.fstat(file.fileno())
                is_another = status.st_ino != self._inode or status.st_size < self._read_up_to
                if is_another:
                    self._inode, self._read_up_to = status.st_ino, 0
                # A file without end must not fill the memory: of what is too much, only the newest.
                self._read_up_to = max(self._read_up_to, status.st_size - status.st_size % ENTRY - _MAX_BYTES)
                file.seek(self._read_up_to)
                content = file.read(_MAX_BYTES + ENTRY)
        except FileNotFoundError:
            return b"", False
        whole = len(content) - len(content) % ENTRY
        self._read_up_to += whole
        return content[:whole], is_another

    def add(self, entries: bytes) -> None:
        """Append."""
        with open(self._path, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            torn = os.fstat(file.fileno()).st_size % ENTRY
            file.write(bytes(-torn % ENTRY) + entries)

    def replace(self, entries: bytes) -> None:
        """Write another file."""
        with atomic_file(self._path) as file:
            file.write(entries)


class RemoteHints:
    """A file for each ``add``; ``replace`` leaves one."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._seen: set[PurePath] = set()

    def new(self) -> tuple[bytes, bool]:
        """The files that were not there before."""
        new = [path for path in self._files() if path not in self._seen]
        content = b"".join(map(self._content, new))
        self._seen.update(new)
        return content, False

    def add(self, entries: bytes) -> None:
        """Write one more."""
        path = self._folder.root / _FOLDER / secrets.token_hex(8)
        with self._folder.writing(path) as file:
            file.write(entries)

    def replace(self, entries: bytes) -> None:
        """Write one, and remove those of before."""
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
            # Replaced meanwhile: hints may be lost.
            return b""
        return content[: len(content) - len(content) % ENTRY]


def hints_in(folder: Folder) -> Hints:
    """Those of a store."""
    return LocalHints(folder.root / _FILE) if isinstance(folder, LocalFolder) else RemoteHints(folder)


class TensorIndex:
    """The hints of one store, as far as they were read."""

    def __init__(self, hints: Hints) -> None:
        self._hints = hints
        self._homes: dict[bytes, bytes] = {}
        # Models that hints name in vain, until others may have come.
        self._gone: set[bytes] = set()

    def find(self, leaf: str, model_of: Callable[[ModelId], Stored]) -> ModelId | None:
        """A model whose file holds the tensor with this hash, or None."""
        home = self._homes.get(bytes.fromhex(leaf))
        if home is None or home in self._gone:
            return None
        try:
            found = model_of(home.hex())
        except (UnknownModel, CorruptFile):
            self._gone.add(home)
            return None
        return found.id if leaf in found.held else None

    def refresh(self) -> None:
        """Read what was added since, also by others."""
        self._gone.clear()
        content, begins_again = self._hints.new()
        if begins_again:
            self._homes = {}
        for start in range(0, len(content), ENTRY):
            self._homes[content[start : start + ENTRY // 2]] = content[start + ENTRY // 2 : start + ENTRY]

    def add(self, leaves: Iterable[str], model: ModelId) -> None:
        """Remember that the file of ``model`` holds these."""
        if entries := b"".join(bytes.fromhex(leaf) + bytes.fromhex(model) for leaf in leaves):
            self._hints.add(entries)

    def rebuild(self, entries: Iterable[tuple[str, ModelId]]) -> None:
        """Start again with these pairs of tensor and model."""
        self._hints.replace(b"".join(bytes.fromhex(leaf) + bytes.fromhex(model) for leaf, model in entries))


#: Below this, looking for the same tensor in other models costs more than it saves.
SHARED: Final = 64 << 10

#: The model that holds the tensor with this hash, if any does.
Find = Callable[[str], ModelId | None]
