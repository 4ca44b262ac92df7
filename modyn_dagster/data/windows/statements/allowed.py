"""Statements of users: their import, and the parts of SQL of which they may consist.

A statement reads the samples of one window, and its result depends on nothing else: no other table, no text, no clock, no
random number, and no order that Postgres chooses.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import sqlalchemy as sa
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.sql.operators import custom_op

from modyn_dagster.errors import ConfigError
from modyn_dagster.imports import import_callable


@dataclass(frozen=True, slots=True)
class StatementOrigin:
    """Place of a statement: ``pipeline shop``, ``selection.strategy.statement``, and the import path."""

    source: str
    field: str
    path: str

    def refuse(self, rule: str) -> NoReturn:
        """Raise ``ConfigError``."""
        raise ConfigError(self.source, self.field, self.path, rule)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that consists of allowed parts, and the names in it that Postgres has to be asked about.

    Attributes:
        select: columns ``key`` and maybe ``chance``.
        functions: names of functions.
        operators: names of operators that SQLAlchemy does not know.
    """

    select: sa.Select[Any] | sa.CompoundSelect[Any]
    functions: frozenset[str]
    operators: frozenset[str]

    @property
    def has_chances(self) -> bool:
        """Tell if a column holds inclusion probabilities."""
        return "chance" in self.select.selected_columns


#: Kinds of elements, as SQLAlchemy's compiler tells them apart.
_ALLOWED: Final = frozenset(
    {
        *("select", "compound_select", "subquery", "cte", "alias", "join", "label", "label_reference"),
        *("column", "bindparam", "null", "true", "false", "binary", "unary", "grouping", "clauselist"),
        *("expression_clauselist", "tuple", "array", "case", "cast", "type_coerce", "typeclause", "extract"),
        *("function", "over", "funcfilter", "withingroup", "aggregate_order_by", "slice"),
        *("select_statement_grouping", "aggregateorderby", "frame_clause"),
    }
)
#: Functions that Postgres has in its grammar alone.
GRAMMAR: Final = frozenset({"coalesce", "nullif", "greatest", "least"})
#: Functions that tell the time, the session or the server, or draw numbers: refused before Postgres is asked.
_OUTSIDE: Final = frozenset(
    {
        *("random", "random_normal", "setseed", "gen_random_uuid", "now", "clock_timestamp", "statement_timestamp"),
        *("transaction_timestamp", "timeofday", "current_timestamp", "current_date", "current_time", "localtime"),
        *("localtimestamp", "current_user", "session_user", "user", "current_setting", "set_config", "pg_sleep", "nextval"),
    }
)
_NUMBERED: Final = frozenset(
    {"row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead", "first_value", "last_value"}
)
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")
_CLAUSES: Final = {
    "_limit_clause": "LIMIT takes what Postgres finds first: set `size`, `ratio` or `limit` of the selection",
    "_offset_clause": "OFFSET skips what Postgres finds first: set `size`, `ratio` or `limit` of the selection",
    "_fetch_clause": "FETCH takes what Postgres finds first: set `size`, `ratio` or `limit` of the selection",
    "_distinct_on": "DISTINCT ON keeps the row that Postgres finds first: number rows by row_number() in an order of your own",
    "_for_update_arg": "FOR UPDATE locks rows, and a selection only reads",
    "_prefixes": "prefixes are text",
    "_suffixes": "suffixes are text",
    "_hints": "hints are text",
    "_statement_hints": "hints are text",
}


def statement_of(origin: StatementOrigin, samples: sa.Subquery) -> Statement:
    """Import a statement's function and call it with the samples of a window.

    Raises:
        ImportPathError: the path cannot be imported or called.
        ConfigError: the function fails, returns no ``select`` of ``key`` and maybe ``chance``, or uses what is not allowed.
    """
    function = import_callable(origin.path, source=origin.source, field=origin.field)
    try:
        select = function(samples)
    except Exception as error:
        rule = f"failed on the samples of a window: {type(error).__name__}: {error}"
        raise ConfigError(origin.source, origin.field, origin.path, rule) from error
    if not isinstance(select, sa.Select | sa.CompoundSelect):
        origin.refuse(f"must return a select of SQLAlchemy, not {type(select).__name__}")
    columns = [str(column.key) for column in select.selected_columns]
    if sorted(columns) not in (["key"], ["chance", "key"]):
        origin.refuse(f"must select `key`, and maybe `chance`, not {', '.join(columns) or 'nothing'}")
    functions, operators = set[str](), set[str]()
    for element in _elements(select, samples):
        if (fault := _fault(element)) is not None:
            origin.refuse(f"{fault}; {_REMEDY}")
        if element.__visit_name__ == "function":
            functions.add(str(getattr(element, "name", "")))
        for part in ("operator", "modifier"):
            if isinstance(used := getattr(element, part, None), custom_op):
                operators.add(used.opstring)
    return Statement(select, frozenset(functions), frozenset(operators))


_REMEDY: Final = "a statement reads the samples that it is given, and nothing else"


def _elements(select: ClauseElement, samples: sa.Subquery) -> Iterator[ClauseElement]:
    """Parts of a statement, without those of the window's samples."""
    remaining: list[Any] = [select]
    visited: dict[int, ClauseElement] = {}
    while remaining:
        element = remaining.pop()
        if element is samples or id(element) in visited:
            continue
        visited[id(element)] = element
        yield element
        remaining += element.get_children()


def _fault(element: Any) -> str | None:
    """Say why an element is not allowed; None if it is."""
    kind, name = element.__visit_name__, getattr(element, "name", None)
    if kind == "table":
        return f"it reads the table {name}"
    clause = next((rule for clause, rule in _CLAUSES.items() if _is_given(getattr(element, clause, None))), None)
    if clause is not None or not type(element).__module__.startswith("sqlalchemy."):
        return clause or f"{type(element).__name__} is no element of SQLAlchemy itself"
    if kind not in _ALLOWED:
        return f"{type(element).__name__} is not allowed ({kind})"
    if getattr(name, "quote", None) is False:
        return f"the name {name!r} is text that is not quoted"
    return _FAULTS[kind](element) if kind in _FAULTS else None


def _is_given(clause: object) -> bool:
    """Tell a clause from the empty ones; elements of SQLAlchemy have no truth value."""
    return clause is not None and not (isinstance(clause, tuple | Mapping) and not clause)


def _column_fault(element: Any) -> str | None:
    # The one text is that of count(*) and of exists.
    if (element.is_literal or element.table is None) and element.name != "*":
        return f"{element.name!r} is no column of the samples: write `samples.c.key`"
    return None


def _type_fault(element: Any) -> str | None:
    kind = type(element.type)
    return None if kind.__module__.startswith("sqlalchemy.") else f"the type {kind.__name__} is none of SQLAlchemy itself"


def _function_fault(element: Any) -> str | None:
    name = str(element.name)
    if element.packagenames not in ((), ("pg_catalog",)) or not _NAME.fullmatch(name):
        return f"{'.'.join((*element.packagenames, name))} is no function of Postgres itself"
    return volatile(name) if name in _OUTSIDE else None


def _over_fault(element: Any) -> str | None:
    name = str(getattr(element.element, "name", ""))
    if name in _NUMBERED and element.order_by is None:
        return f"{name}() numbers rows as Postgres finds them: give `order_by`, with the key last"
    return None


#: Further rules by kind of element.
_FAULTS: Final[Mapping[str, Callable[[Any], str | None]]] = {
    "column": _column_fault,
    "cast": _type_fault,
    "type_coerce": _type_fault,
    "typeclause": _type_fault,
    "function": _function_fault,
    "over": _over_fault,
}


def volatile(name: str) -> str:
    """Say that a function's result depends on more than its arguments."""
    return f"{name}() depends on more than its arguments (the clock, a setting, a random number): a selection is repeatable"
