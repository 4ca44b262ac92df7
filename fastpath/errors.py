"""Errors of reading samples, as one tree; each error carries its fields and can be pickled.

Error
└─ StoreError
   ├─ UnknownKey     (key, dataset)                                     LookupError too
   ├─ DeletedKey     (key, dataset, path, offset)                       LookupError too
   └─ CorruptFile    (path, expected, found, key, offset, dataset)
"""

from pathlib import PurePath
from typing import Any, Self


class Error(Exception):
    """Base of all errors of this distribution. They reach another process with their class, message and fields."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args), self.__dict__


def _restored(kind: type[Error], arguments: tuple[Any, ...]) -> Error:
    # The class may come from a message of another process.
    if not issubclass(kind, Error):
        raise TypeError(f"{kind.__name__} is no error of ours")
    # Not by the constructor: it takes the fields, and makes the message of them.
    return kind.__new__(kind, *arguments)


class StoreError(Error):
    """Base of all errors of this package; the message says what, where, expected and found."""


class UnknownKey(StoreError, LookupError):
    """Key that no sample has."""

    def __init__(self, key: int, dataset: str) -> None:
        super().__init__(f"{dataset}: no sample with key {key} (batch {key >> 32}, position {key & 0xFFFFFFFF})")
        self.key, self.dataset = key, dataset

    def __reduce__(self) -> tuple[type[Self], tuple[int, str]]:
        return type(self), (self.key, self.dataset)


class DeletedKey(StoreError, LookupError):
    """Key of a deleted sample; ``path`` and ``offset`` locate the first byte of the sample, where known."""

    def __init__(self, key: int, dataset: str, path: PurePath | str | None = None, offset: int | None = None) -> None:
        place = "" if path is None else f", byte {offset} of {path}"
        super().__init__(
            f"{dataset}: the sample with key {key} was deleted (batch {key >> 32}, position {key & 0xFFFFFFFF}{place})"
        )
        self.key, self.dataset, self.path, self.offset = key, dataset, None if path is None else str(path), offset

    def __reduce__(self) -> tuple[type[Self], tuple[int, str, str | None, int | None]]:
        return type(self), (self.key, self.dataset, self.path, self.offset)


class CorruptFile(StoreError):
    """File whose content contradicts its checksum, its header or the index.

    ``key`` names the sample being read, ``offset`` the first byte of that sample in the file.
    """

    def __init__(
        self,
        path: PurePath | str,
        expected: str,
        found: str,
        *,
        key: int | None = None,
        offset: int | None = None,
        dataset: str | None = None,
    ) -> None:
        place = [dataset] if dataset is not None else []
        place += [f"{name} {value}" for name, value in (("key", key), ("offset", offset)) if value is not None]
        super().__init__(f"{path}: expected {expected}, found {found}" + (f" ({', '.join(place)})" if place else ""))
        self.path, self.expected, self.found = str(path), expected, found
        self.key, self.offset, self.dataset = key, offset, dataset

    def __reduce__(self) -> tuple[type[Self], tuple[str, str, str], dict[str, object]]:
        return type(self), (self.path, self.expected, self.found), self.__dict__ | {"args": self.args}

    def read_for(self, dataset: str, key: int | None = None, offset: int | None = None) -> "CorruptFile":
        """Copy of this error that also names the dataset, and the sample if one was being read."""
        return CorruptFile(self.path, self.expected, self.found, key=key, offset=offset, dataset=dataset)
