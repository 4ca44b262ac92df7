"""Errors of stored things: the catalog, sample files, models and provenance that cannot be read, written or repeated."""

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

    def __init__(self, model: str, root: PurePath | str, remedy: str = "") -> None:
        super().__init__(f"{root}: no model {model!r} in this store{remedy}")
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

    def __init__(self, field: str, expected: object, found: object, *, doing: str = "trained again") -> None:
        super().__init__(f"cannot be {doing}: {field}: expected {expected}, found {found}")
        self.field, self.expected, self.found = field, expected, found


class NotAllowed(NotReproducible):
    """A provenance, or an architecture, names a function outside the modules whose code the store may run."""

    def __init__(
        self, function: str, allow: Sequence[str], *, field: str = "train", doing: str = "trained again", defined: str = ""
    ) -> None:
        allowed = f"a function below {', '.join(allow)}" if allow else "nothing, for the store was opened without allow=[…]"
        module = (defined or function).partition(":")[0]
        remedy = f"if you trust it, allow=[{module!r}] (--allow {module}) lets it run"
        super().__init__(field, allowed, f"{function}{defined and f', which is {defined}'}; {remedy}", doing=doing)
        self.found, self.train, self.allow = function, function, list(allow)


class CatalogError(ModynError):
    """Postgres cannot answer."""


class DatabaseDown(CatalogError):
    """No connection to Postgres. ``address`` never holds a password."""

    def __init__(self, address: str, reason: str = "") -> None:
        detail = f" ({reason})" if reason else ""
        super().__init__(
            f"Postgres at {address} does not answer{detail}; start it with `modyn-dagster db start`, "
            "or set MODYN_POSTGRES_URL to a server that runs"
        )
        self.address = address


class ServerFailed(CatalogError):
    """The embedded Postgres server cannot be set up, started or stopped."""


class SchemaOutdated(CatalogError):
    """The schema in the database is not the one this code needs; ``remedy`` says how to get there."""

    def __init__(self, found: str | None, expected: str, remedy: str) -> None:
        super().__init__(f"the database schema is at revision {found or 'none'}, this version needs {expected}; {remedy}")
        self.found, self.expected, self.remedy = found, expected, remedy


class UnknownName(CatalogError, LookupError):
    """A dataset, pipeline, run, batch or trigger that does not exist."""

    def __init__(self, kind: str, name: object, known: Sequence[str] = ()) -> None:
        hint = f"; known: {', '.join(known)}" if known else ""
        super().__init__(f"no {kind} {name!r}{hint}")
        self.kind, self.name, self.known = kind, name, list(known)
