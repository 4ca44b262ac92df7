"""Small documents that many models share, stored once under their hash: environments and source files."""

import hashlib
import json
from pathlib import PurePath
from typing import Final

from modyn_dagster.errors import CorruptFile, StorageError
from modyn_dagster.model_store.environment import Environment
from modyn_dagster.model_store.folder import Folder

_MAX_BYTES: Final = 16 << 20
_FOLDER: Final = "documents"


class Documents:
    """Texts of a store, as ``documents/<first two digits>/<SHA-256>``; nothing in them is ever executed."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def save(self, text: str) -> str:
        """Store a text, unless it is there already, and return its hash."""
        content = text.encode()
        digest = hashlib.sha256(content).hexdigest()
        path = self._path(digest)
        # Where removers are not kept out, one that was just written is safe from them.
        if self._folder.notices is not None or self._folder.size(path) != len(content):
            with self._folder.writing(path) as file:
                file.write(content)
        return digest

    def load(self, digest: str) -> str:
        """The text with this hash. ``StorageError`` when it is not there, ``CorruptFile`` when it changed."""
        path = self._path(digest)
        if len(digest) != 64 or not digest.isalnum() or self._folder.size(path) is None:
            raise StorageError(f"{self._folder.root / _FOLDER}: no document {digest!r}")
        with self._folder.open(path) as file:
            content = file.read(_MAX_BYTES)
        found = hashlib.sha256(content).hexdigest()
        if found != digest:
            raise CorruptFile(path, f"SHA-256 {digest}", found)
        return content.decode()

    def environment(self, digest: str) -> Environment:
        """The environment with this hash. ``CorruptFile`` for another document."""
        try:
            return Environment.parse(json.loads(self.load(digest)))
        except ValueError as error:
            raise CorruptFile(self._path(digest), "an environment", str(error)) from error

    def keep(self, wanted: set[str], older_than: float) -> list[PurePath]:
        """Remove all others that no writer of now can have written, and return their paths."""
        unwanted = [path for path in self._folder.files(_FOLDER) if path.name not in wanted]
        removed = []
        for path in unwanted:
            if self._folder.removable(path, older_than):
                self._folder.remove(path)
                removed.append(path)
        return removed

    def _path(self, digest: str) -> PurePath:
        return self._folder.root / _FOLDER / digest[:2] / digest
