"""Which model holds a tensor: a file of hints, each checked against the model's header before it is believed.

64 bytes an entry: hash of the tensor, id of the model. Entries are only appended; a torn one is filled up by the next writer.
Losing the file loses nothing but the sharing of tensors with models saved before; ``rebuild`` makes it again.
"""

import fcntl
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from modyn_dagster.errors import CorruptFile, UnknownModel
from modyn_dagster.model_store.hash_tree import ModelId
from modyn_dagster.model_store.stored import Stored
from modyn_dagster.storage import atomic_file

_ENTRY: Final = 64


class TensorIndex:
    """The hints of one store."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read_up_to = 0
        self._inode = 0
        self._homes: dict[bytes, bytes] = {}

    def find(self, leaf: str, model_of: Callable[[ModelId], Stored]) -> ModelId | None:
        """A model whose file holds the tensor with this hash, or None."""
        home = self._homes.get(bytes.fromhex(leaf))
        if home is None:
            return None
        try:
            found = model_of(home.hex())
        except (UnknownModel, CorruptFile):
            return None
        return found.id if leaf in found.held else None

    def refresh(self) -> None:
        """Read what was appended since, also by others."""
        try:
            with open(self.path, "rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._read_up_to:
                    self._inode, self._read_up_to, self._homes = status.st_ino, 0, {}
                file.seek(self._read_up_to)
                content = file.read()
        except FileNotFoundError:
            return
        whole = len(content) - len(content) % _ENTRY
        for start in range(0, whole, _ENTRY):
            self._homes[content[start : start + 32]] = content[start + 32 : start + _ENTRY]
        self._read_up_to += whole

    def add(self, leaves: Iterable[str], model: ModelId) -> None:
        """Remember that the file of ``model`` holds these."""
        entries = b"".join(bytes.fromhex(leaf) + bytes.fromhex(model) for leaf in leaves)
        if not entries:
            return
        with open(self.path, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            torn = os.fstat(file.fileno()).st_size % _ENTRY
            file.write(bytes(-torn % _ENTRY) + entries)

    def rebuild(self, entries: Iterable[tuple[str, ModelId]]) -> None:
        """Start again with these pairs of tensor and model."""
        content = b"".join(bytes.fromhex(leaf) + bytes.fromhex(model) for leaf, model in entries)
        with atomic_file(self.path) as file:
            file.write(content)
