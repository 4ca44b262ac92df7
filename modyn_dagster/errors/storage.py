"""Errors of stored things: the catalog, sample files, models and provenance that cannot be read, written or repeated."""

from collections.abc import Sequence
from pathlib import PurePath

from fastpath.errors import CorruptFile, DeletedKey, UnknownKey
from fastpath.errors import Error as ModynError
from fastpath.errors import StoreError as StorageError

__all__ = [
    "CatalogError",
    "CorruptFile",
    "DatabaseDown",
    "DatabaseFull",
    "DeletedKey",
    "ModelInUse",
    "NotAllowed",
    "NotReproducible",
    "ReportChanged",
    "SchemaOutdated",
    "ServerFailed",
    "StorageError",
    "UnknownKey",
    "UnknownModel",
    "UnknownName",
    "WeightsNotStored",
    "WriteFailed",
]


class WriteFailed(StorageError):
    """Write that the operating system refused. No incomplete file is visible."""

    def __init__(self, path: PurePath | str, reason: str) -> None:
        super().__init__(f"{path}: cannot be written: {reason}")
        self.path = str(path)


class UnknownModel(StorageError, LookupError):
    """Id of a model that is not in the model store."""

    def __init__(self, model: str, root: PurePath | str, remedy: str = "") -> None:
        super().__init__(f"{root}: no model {model!r} in this store{remedy}")
        self.model, self.root = model, str(root)


class ModelInUse(StorageError):
    """Model that cannot be deleted: ``children`` need its file, or start their training from its weights."""

    def __init__(self, model: str, children: Sequence[str], remedy: str) -> None:
        shown = ", ".join(children[:3]) + (", …" if len(children) > 3 else "")
        super().__init__(f"model {model} is needed by {len(children)} others ({shown}); {remedy}")
        self.model, self.children = model, list(children)


class WeightsNotStored(StorageError):
    """Model that is stored as provenance only: it can be retrained, not read."""

    def __init__(self, model: str, what: str) -> None:
        super().__init__(f"model {model} is stored without weights, {what}")
        self.model = model


class NotReproducible(StorageError):
    """Model that is stored as provenance and cannot be retrained bit for bit; ``field`` names the difference."""

    def __init__(self, field: str, expected: object, found: object, *, doing: str = "trained again") -> None:
        super().__init__(f"cannot be {doing}: {field}: expected {expected}, found {found}")
        self.field, self.expected, self.found = field, expected, found


class NotAllowed(NotReproducible):
    """Function, named by a provenance or an architecture, outside the modules whose code the store may run."""

    def __init__(
        self, function: str, allow: Sequence[str], *, field: str = "train", doing: str = "trained again", defined: str = ""
    ) -> None:
        allowed = f"a function below {', '.join(allow)}" if allow else "nothing, for the store was opened without allow=[…]"
        module = (defined or function).partition(":")[0]
        remedy = f"if you trust it, allow=[{module!r}] (--allow {module}) lets it run"
        super().__init__(field, allowed, f"{function}{defined and f', which is {defined}'}; {remedy}", doing=doing)
        self.found, self.train, self.allow = function, function, list(allow)


class ReportChanged(StorageError):
    """Report of a deletion that is not what was signed, or not signed by the expected key."""

    def __init__(self, path: PurePath | str, fault: str) -> None:
        super().__init__(f"{path}: {fault}")
        self.path, self.fault = str(path), fault


class CatalogError(ModynError):
    """Base of the errors of Postgres and the catalog in it."""


class DatabaseDown(CatalogError):
    """Postgres server that does not answer. ``address`` never contains a password."""

    def __init__(self, address: str, reason: str = "") -> None:
        detail = f" ({reason})" if reason else ""
        super().__init__(
            f"Postgres at {address} does not answer{detail}; start it with `modyn-dagster db start`, "
            "or set MODYN_POSTGRES_URL to a server that runs"
        )
        self.address = address


class DatabaseFull(CatalogError):
    """Postgres server whose disk has no room; nothing of the transaction was committed."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"Postgres at {address} has no room left on its disk ({reason}); free space there, then go on")
        self.address = address


class ServerFailed(CatalogError):
    """Embedded Postgres server that cannot be set up, started or stopped."""


class SchemaOutdated(CatalogError):
    """Database schema of another version; ``remedy`` says how to get to this one."""

    def __init__(self, found: str | None, expected: str, remedy: str) -> None:
        super().__init__(f"the database schema is at revision {found or 'none'}, this version needs {expected}; {remedy}")
        self.found, self.expected, self.remedy = found, expected, remedy


class UnknownName(CatalogError, LookupError):
    """Dataset, pipeline, run, batch or trigger that does not exist."""

    def __init__(self, kind: str, name: object, known: Sequence[str] = ()) -> None:
        hint = f"; known: {', '.join(known)}" if known else ""
        super().__init__(f"no {kind} {name!r}{hint}")
        self.kind, self.name, self.known = kind, name, list(known)
