"""The catalog in Postgres cannot answer."""

from collections.abc import Sequence

from modyn_dagster.errors.base import ModynError


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
    """The schema in the database is not the one this code needs; ``newer`` when only later code knows it."""

    def __init__(self, found: str | None, expected: str, *, newer: bool = False) -> None:
        remedy = "update modyn-dagster" if newer else "run `modyn-dagster db upgrade`"
        super().__init__(f"the database schema is at revision {found or 'none'}, this version needs {expected}; {remedy}")
        self.found, self.expected, self.newer = found, expected, newer


class UnknownName(CatalogError, LookupError):
    """A dataset, pipeline, run, batch or trigger that does not exist."""

    def __init__(self, kind: str, name: object, known: Sequence[str] = ()) -> None:
        hint = f"; known: {', '.join(known)}" if known else ""
        super().__init__(f"no {kind} {name!r}{hint}")
        self.kind, self.name, self.known = kind, name, list(known)
