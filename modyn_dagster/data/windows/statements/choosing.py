"""Run of a user's statement over the samples of a window, in a transaction that only reads, by a role that reads them alone."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import psycopg2
import sqlalchemy as sa
from psycopg2 import errorcodes

from modyn_dagster.catalog.access.statement_role import STATEMENT, require_statement_role
from modyn_dagster.catalog.database.engine import named_faults
from modyn_dagster.data.view import DatasetView
from modyn_dagster.data.windows.statements.allowed import GRAMMAR, Statement, StatementOrigin, statement_of, volatile
from modyn_dagster.data.windows.statements.window_samples import hold_samples, window_samples
from modyn_dagster.errors import SelectionError
from modyn_dagster.keys import KeyArray

#: One value of the result holds the keys that have the bits above these in common: a value of Postgres has less than 1 GiB.
_BITS_PER_VALUE: Final = 22
#: Classes of SQLSTATE that are faults of the statement itself; those of the server and the connection pass.
_OWN_FAULTS: Final = ("0A", "21", "22", "25", "42", "54")
#: Functions that depend on settings of the session besides, which are the same in all of ours: time zone, formats, locale.
_BY_SETTINGS: Final = frozenset(
    {"concat", "concat_ws", "date_part", "date_trunc", "extract", "to_char", "to_date", "to_timestamp"}
)


class ChosenRows(NamedTuple):
    """Result of a statement, in any order.

    Attributes:
        keys: ``int64[m]``.
        chances: ``float64[m]``, NaN for null; None without such a column.
    """

    keys: npt.NDArray[np.int64]
    chances: npt.NDArray[np.float64] | None


def chosen_rows(view: DatasetView, keys: Iterable[KeyArray], origin: StatementOrigin, seconds: int) -> ChosenRows:
    """Run a statement over the samples of a window.

    Args:
        view: of the dataset at the trigger.
        keys: of the window, ascending, in chunks.
        origin: of the statement.
        seconds: longest time of the statement.

    Raises:
        ConfigError: the statement uses what is not allowed, such as a function whose result depends on more than its arguments.
        CatalogError: the server has no role for statements, or the writer may not take it on.
        SelectionError: Postgres cannot compute it, it took too long, or a key is null.
    """
    with named_faults(view.engine), view.engine.connect() as conn:
        try:
            # The transaction is rolled back in any case, and the temporary relations with it.
            statement = statement_of(origin, window_samples())
            require_statement_role(conn)
            require_repeatable(conn, statement, origin)
            hold_samples(conn, view, keys)
            only_read(conn, seconds)
            return _rows(conn.execute(packed(statement)).tuples(), statement, origin)
        except sa.exc.DBAPIError as error:
            _raise_own(error, origin, seconds)
            raise
        finally:
            conn.rollback()


def only_read(conn: sa.Connection, seconds: int) -> None:
    """Let the rest of a transaction write nothing, read the window's samples alone, and compute in one order.

    Parallel workers hand out rows in another order.
    """
    settings = {
        "transaction_read_only": "on",
        "max_parallel_workers_per_gather": "0",
        "synchronize_seqscans": "off",
        "statement_timeout": f"{seconds}s",
        "search_path": "pg_catalog, pg_temp",
        "role": STATEMENT,
    }
    conn.execute(sa.select(*(sa.func.set_config(name, value, True) for name, value in settings.items())))


def packed(statement: Statement) -> sa.Select[Any]:
    """Few values with many keys each: neither the server nor libpq handles them one by one."""
    chosen = statement.select.subquery("chosen")
    value: sa.ColumnElement[bytes] = sa.func.int8send(chosen.c.key, type_=sa.LargeBinary)
    if statement.has_chances:
        chance = sa.func.coalesce(sa.cast(chosen.c.chance, sa.Double), sa.cast(sa.literal("NaN"), sa.Double))
        value = value.concat(sa.func.float8send(chance, type_=sa.LargeBinary))
    together = sa.func.string_agg(value, sa.literal(b"", sa.LargeBinary), type_=sa.LargeBinary)
    return sa.select(sa.func.count(), together).group_by(chosen.c.key.op(">>")(_BITS_PER_VALUE))


def _rows(values: Iterable[tuple[int, bytes | None]], statement: Statement, origin: StatementOrigin) -> ChosenRows:
    row = np.dtype([("key", ">i8"), ("chance", ">f8")] if statement.has_chances else [("key", ">i8")])
    parts = [np.empty(0, row)]
    for n, value in values:
        rows = np.frombuffer(value or b"", row)
        if len(rows) != n:
            raise SelectionError(f"{origin.source}: {origin.field}: {origin.path} selects a key that is null")
        parts.append(rows)
    rows = np.concatenate(parts)
    chances = rows["chance"].astype(np.float64) if statement.has_chances else None
    return ChosenRows(rows["key"].astype(np.int64), chances)


def require_repeatable(conn: sa.Connection, statement: Statement, origin: StatementOrigin) -> None:
    """Raise ``ConfigError`` for a function or an operator of which some form is not immutable, or that does not exist."""
    asked = sorted(statement.functions - GRAMMAR - _BY_SETTINGS)
    found = dict(conn.execute(_FUNCTIONS, {"names": asked}).tuples().all()) if asked else {}
    for name in asked:
        if name not in found:
            origin.refuse(f"{name} is no function of Postgres itself")
        if not found[name]:
            origin.refuse(volatile(name))
    symbols = sorted(statement.operators)
    found = dict(conn.execute(_OPERATORS, {"names": symbols}).tuples().all()) if symbols else {}
    for symbol in symbols:
        if not found.get(symbol, False):
            origin.refuse(f"the operator {symbol} is none of Postgres itself, or depends on more than its operands")


def _volatility(table: str, name: str, *more: str) -> Any:
    return sa.table(table, sa.column(name), *(sa.column(other) for other in more), schema="pg_catalog")


_PROC: Final = _volatility("pg_proc", "proname", "oid", "provolatile", "pronamespace")
_OPERATOR: Final = _volatility("pg_operator", "oprname", "oprcode", "oprnamespace")
_SPACE: Final = _volatility("pg_namespace", "nspname", "oid")
_ALWAYS: Final = sa.func.bool_and(_PROC.c.provolatile == "i")
_OURS: Final = sa.select(_SPACE.c.oid).where(_SPACE.c.nspname == "pg_catalog").scalar_subquery()
_FUNCTIONS: Final = (
    sa.select(_PROC.c.proname, _ALWAYS)
    .where(_PROC.c.proname.in_(sa.bindparam("names", expanding=True)), _PROC.c.pronamespace == _OURS)
    .group_by(_PROC.c.proname)
)
_OPERATORS: Final = (
    sa.select(_OPERATOR.c.oprname, _ALWAYS)
    .join_from(_OPERATOR, _PROC, sa.cast(_OPERATOR.c.oprcode, sa.dialects.postgresql.OID) == _PROC.c.oid)
    .where(_OPERATOR.c.oprname.in_(sa.bindparam("names", expanding=True)), _OPERATOR.c.oprnamespace == _OURS)
    .group_by(_OPERATOR.c.oprname)
)


def _raise_own(error: sa.exc.DBAPIError, origin: StatementOrigin, seconds: int) -> None:
    """Raise ``SelectionError`` for a fault of the statement, which another attempt would meet again; others pass."""
    cause = error.orig
    code = (cause.pgcode or "") if isinstance(cause, psycopg2.Error) else ""
    place = f"{origin.source}: {origin.field}: {origin.path}"
    if code == errorcodes.QUERY_CANCELED:
        rule = "make it cheaper, or raise `timeout` of the strategy; nothing was selected"
        raise SelectionError(f"{place} took longer than {seconds} s: {rule}") from None
    if code[:2] in _OWN_FAULTS:
        # Without its cause: a refusal to write is no fault of the server that passes.
        raise SelectionError(f"{place}: Postgres cannot compute it: {str(cause).strip()}") from None
