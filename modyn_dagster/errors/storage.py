"""A sample, a model or a file of ours cannot be read or written, or a model not be trained again."""

from collections.abc import Sequence
from pathlib import PurePath

from modyn_dagster.errors.base import ModynError


class StorageError(ModynError):
    """A file of ours cannot be read or written."""


class UnknownKey(StorageError, LookupError):
    """No sample has this key."""

    def __init__(self, key: int, dataset: str) -> None:
        super().__init__(f"{dataset}: no sample with key {key} (batch {key >> 32}, position {key & 0xFFFFFFFF})")
        self.key, self.dataset = key, dataset


class DeletedKey(StorageError, LookupError):
    """The sample with this key was deleted: it is not read, trained on or judged any more.

    Where known, ``path`` and ``offset`` say in which file it began where.
    """

    def __init__(self, key: int, dataset: str, path: PurePath | str | None = None, offset: int | None = None) -> None:
        place = "" if path is None else f", byte {offset} of {path}"
        super().__init__(
            f"{dataset}: the sample with key {key} was deleted (batch {key >> 32}, position {key & 0xFFFFFFFF}{place})"
        )
        self.key, self.dataset, self.path, self.offset = key, dataset, None if path is None else str(path), offset


class CorruptFile(StorageError):
    """A file does not hold what its checksum, its header or an index promises.

    ``key`` is that of a sample it was read for, ``offset`` where that sample begins in the file.
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


class WriteFailed(StorageError):
    """The operating system refused a write; nothing half-written is visible."""

    def __init__(self, path: PurePath | str, reason: str) -> None:
        super().__init__(f"{path}: cannot be written: {reason}")
        self.path = str(path)


class UnknownModel(StorageError, LookupError):
    """The model store holds no model with this id."""

    def __init__(self, model: str, root: PurePath | str) -> None:
        super().__init__(f"{root}: no model {model!r} in this store")
        self.model, self.root = model, str(root)


class ModelInUse(StorageError):
    """A model cannot be deleted: ``children`` need its file, or its weights to train on from."""

    def __init__(self, model: str, children: Sequence[str], remedy: str) -> None:
        shown = ", ".join(children[:3]) + (", …" if len(children) > 3 else "")
        super().__init__(f"model {model} is needed by {len(children)} others ({shown}); {remedy}")
        self.model, self.children = model, list(children)


class WeightsNotStored(StorageError):
    """A model is stored as its provenance: it can be trained again, not read."""

    def __init__(self, model: str, what: str) -> None:
        super().__init__(f"model {model} is stored without weights, {what}")
        self.model = model


class NotReproducible(StorageError):
    """A model that is stored as its provenance cannot be trained again as it was; ``field`` says what differs."""

    def __init__(self, field: str, expected: object, found: object) -> None:
        super().__init__(f"cannot be trained again: {field}: expected {expected}, found {found}")
        self.field, self.expected, self.found = field, expected, found


class NotAllowed(NotReproducible):
    """A provenance names a function outside the modules whose code the store may run."""

    def __init__(self, train: str, allow: Sequence[str]) -> None:
        allowed = f"a module below {', '.join(allow)}" if allow else "nothing, for the store was opened without allow=[…]"
        super().__init__("train", allowed, train)
        self.train, self.allow = train, list(allow)
