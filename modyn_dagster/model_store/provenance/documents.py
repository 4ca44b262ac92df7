"""Small documents that many models share, stored once under their hash: environments and source files."""

import hashlib
import json
import re
from pathlib import PurePath
from typing import Final

from modyn_dagster.environment import Environment
from modyn_dagster.errors import CorruptFile, StorageError
from modyn_dagster.model_store.backends.folder import Folder

_MAX_BYTES: Final = 16 << 20
_FOLDER: Final = "documents"
_HASH: Final = re.compile(r"[0-9a-f]{64}")


class Documents:
    """Texts of a store, as ``documents/<first two digits>/<SHA-256>``; nothing in them is ever executed."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def save(self, text: str) -> str:
        """Store a text, unless it is there already, and return its hash."""
        content = text.encode()
        if len(content) > _MAX_BYTES:
            raise StorageError(f"a document of {len(content)} bytes cannot be stored: at most {_MAX_BYTES} are read again")
        digest = hashlib.sha256(content).hexdigest()
        path = self._path(digest)
        # Where removers are not kept out, one that was just written is safe from them.
        if self._folder.notices is not None or not self._has(path, content):
            with self._folder.writing(path) as file:
                file.write(content)
        return digest

    def load(self, digest: str) -> str:
        """The text with this hash. ``CorruptFile`` when it is not there, or changed."""
        path = self._path(digest) if _HASH.fullmatch(digest) else None
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
        """The environment with this hash. ``CorruptFile`` for another document."""
        try:
            return Environment.parse(json.loads(self.load(digest)))
        except (ValueError, RecursionError) as error:
            raise CorruptFile(self._path(digest), "an environment", str(error)) from error

    def keep(self, wanted: set[str], older_than: float) -> list[PurePath]:
        """Remove all others that no writer of now can have written, and return their paths."""
        there = [path for path in self._folder.files(_FOLDER) if _HASH.fullmatch(path.name) and path == self._path(path.name)]
        unwanted = [path for path in there if path.name not in wanted]
        removed = []
        for path in unwanted:
            if self._folder.removable(path, older_than):
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
