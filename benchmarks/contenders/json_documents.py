"""MMlib's documents in JSON files instead of MongoDB."""

import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class JsonDocuments:
    """One file a document, one folder a type: the methods of MMlib's ``DictPersistenceService``, by its names.

    What is not there is a ``KeyError`` that names type and id. Nothing is synced: MongoDB, too, answers before a document is
    on the disk.
    """

    #: MMlib's save services set it; events are not logged here.
    logging = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def generate_id(self) -> str:
        """A new one."""
        return uuid.uuid4().hex

    def save_dict(self, insert_dict: Mapping[str, Any], represent_type: str) -> str:
        """Write a document, under its own ``id`` if it has one; the id."""
        name = str(insert_dict.get("id", self.generate_id()))
        path = self._path(name, represent_type)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(insert_dict), encoding="utf-8")
        return name

    def recover_dict(self, dict_id: str, represent_type: str) -> dict[str, Any]:
        """A document."""
        found: dict[str, Any] = json.loads(self._there(dict_id, represent_type).read_text(encoding="utf-8"))
        return found

    def dict_size(self, dict_id: str, represent_type: str) -> int:
        """Bytes of its file."""
        return self._there(dict_id, represent_type).stat().st_size

    def id_exists(self, dict_id: str, represent_type: str) -> bool:
        """Whether there is such a document."""
        return self._path(dict_id, represent_type).is_file()

    def all_ids_for_type(self, represent_type: str) -> Sequence[str]:
        """In order."""
        return sorted(path.stem for path in (self._folder / represent_type).glob("*.json"))

    def add_field(self, dict_id: str, represent_type: str, add_dict: Mapping[str, Any]) -> None:
        """Set fields of a document that is there."""
        changed = {**self.recover_dict(dict_id, represent_type), **add_dict}
        self._path(dict_id, represent_type).write_text(json.dumps(changed), encoding="utf-8")

    def _path(self, name: str, kind: str) -> Path:
        return self._folder / kind / f"{name}.json"

    def _there(self, name: str, kind: str) -> Path:
        path = self._path(name, kind)
        if not path.is_file():
            raise KeyError(f"{kind}: no document {name}")
        return path
