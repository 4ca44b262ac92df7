"""Small documents that many models share, stored once under their hash: environments and source files."""

import hashlib
import json
from pathlib import Path
from typing import Final

from modyn_dagster.errors import CorruptFile, StorageError
from modyn_dagster.model_store.environment import Environment
from modyn_dagster.storage import atomic_file

_MAX_BYTES: Final = 16 << 20


class Documents:
    """Texts in a folder, as ``<first two digits>/<SHA-256>``; nothing in them is ever executed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, text: str) -> str:
        """Store a text, unless it is there already, and return its hash."""
        content = text.encode()
        digest = hashlib.sha256(content).hexdigest()
        path = self._path(digest)
        if not path.is_file() or path.stat().st_size != len(content):
            with atomic_file(path) as file:
                file.write(content)
        return digest

    def load(self, digest: str) -> str:
        """The text with this hash. ``StorageError`` when it is not there, ``CorruptFile`` when it changed."""
        path = self._path(digest)
        if len(digest) != 64 or not digest.isalnum() or not path.is_file():
            raise StorageError(f"{self._folder}: no document {digest!r}")
        with open(path, "rb") as file:
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

    def keep(self, wanted: set[str]) -> list[Path]:
        """Remove all others, and return their paths."""
        unwanted = [path for path in self._folder.glob("*/*") if path.name not in wanted]
        for path in unwanted:
            path.unlink()
        return unwanted

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest
