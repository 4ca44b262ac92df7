"""Documents of a store: environments and source files that many models share, stored once under their hash."""

import hashlib
import json
from pathlib import PurePath
from typing import Final

from modyn_dagster.errors import CorruptFile, StorageError
from modyn_dagster.model_store.backends.folder import Folder
from modyn_dagster.model_store.format.hash_tree import is_id
from modyn_dagster.reproducibility.environment import Environment

_MAX_BYTES: Final = 16 << 20
_FOLDER: Final = "documents"


class Documents:
    """Texts of a store, as ``documents/<first two digits>/<SHA-256>``; nothing in them is ever executed."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def save(self, text: str) -> str:
        """Store a text, unless it exists already, and return its hash."""
        content = text.encode()
        if len(content) > _MAX_BYTES:
            raise StorageError(f"a document of {len(content)} bytes cannot be stored: at most {_MAX_BYTES} are allowed")
        digest = hashlib.sha256(content).hexdigest()
        path = self._path(digest)
        # Without locks, only a document written just now is safe from removers.
        if self._folder.reservations is not None or not self._has(path, content):
            with self._folder.writing(path) as file:
                file.write(content)
        else:
            self._folder.settle(path)
        return digest

    def load(self, digest: str) -> str:
        """Text with this hash. ``CorruptFile`` for a missing or changed document."""
        path = self._path(digest) if is_id(digest) else None
        if path is None or self._folder.size(path) is None:
            raise CorruptFile(self._folder.root / _FOLDER, f"document {digest!r}", "no such document")
        content = self._content(path)
        found = hashlib.sha256(content).hexdigest()
        if found != digest:
            raise CorruptFile(path, f"SHA-256 {digest}", found)
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise CorruptFile(path, "a text", str(error)) from error

    def environment(self, digest: str) -> Environment:
        """Environment with this hash. ``CorruptFile`` for another document."""
        try:
            return Environment.parse(json.loads(self.load(digest)))
        except (ValueError, RecursionError) as error:
            raise CorruptFile(self._path(digest), "an environment", str(error)) from error

    def keep(self, referenced: set[str], older_than: float) -> list[PurePath]:
        """Remove all documents but these that no active writer can have written, and return their paths."""
        documents = [path for path in self._folder.files(_FOLDER) if is_id(path.name) and path == self._path(path.name)]
        removed = []
        for path in documents:
            if path.name not in referenced and self._folder.removable(path, older_than):
                self._folder.remove(path)
                removed.append(path)
        return removed

    def _has(self, path: PurePath, content: bytes) -> bool:
        return self._folder.size(path) == len(content) and self._content(path) == content

    def _content(self, path: PurePath) -> bytes:
        with self._folder.open(path) as file:
            return file.read(_MAX_BYTES)

    def _path(self, digest: str) -> PurePath:
        return self._folder.root / _FOLDER / digest[:2] / digest
