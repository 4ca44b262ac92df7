"""Tables derived from frozen dataclasses, rows read back into them, and sample times in NumPy and in Postgres.

A dataclass declares a table once: ``table("batch", BatchRow, ...)`` makes one column per field. Keys are ``bigint`` positions
in the stream (``modyn_dagster.keys``); times are ``timestamptz`` in UTC with microseconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import Enum, auto
from operator import itemgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

metadata: Final = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

TIME: Final = sa.DateTime(timezone=True)
#: Column types by Python type; a literal is text, everything else is JSON.
_TYPES: Final[Mapping[type, sa.types.TypeEngine[Any]]] = {
    int: sa.Integer(),
    str: sa.Text(),
    float: sa.Double(),
    bool: sa.Boolean(),
    datetime: TIME,
}

Row = TypeVar("Row")


class Mark(Enum):
    """Facts about a column that the type of its field does not tell.

    Attributes:
        APPENDED: a migration has added the column, behind all that were there.
        JOINED: no column of this table; queries take the value from another one.
        PRIMARY: primary key.
        UNIQUE: no two rows have the same value.
        NULLABLE: null in the database, although the field's type has no None.
    """

    APPENDED = auto()
    JOINED = auto()
    PRIMARY = auto()
    UNIQUE = auto()
    NULLABLE = auto()


@dataclass(frozen=True, slots=True)
class Default:
    """Server default of a column: text, or an SQL expression."""

    value: Any


@dataclass(frozen=True, slots=True)
class References:
    """Foreign key to a column, ``table.column``."""

    column: str


#: Surrogate key that the database assigns.
Id = Annotated[int, Mark.PRIMARY]
BigInt = Annotated[int, sa.BigInteger()]
Created = Annotated[datetime, Default(sa.func.now())]


def table(name: str, row: type, *items: sa.schema.SchemaItem) -> sa.Table:
    """A table with one column per field of a row class, except joined fields.

    Args:
        name: name of the table.
        row: dataclass; ``Annotated`` fields carry a ``Mark``, ``Default``, ``References`` or SQLAlchemy type.
        items: further columns, constraints and indexes.

    The primary key comes first; a row class without one gets an ``id``.
    """
    marks = {field: (hint, getattr(hint, "__metadata__", ())) for field, hint in get_type_hints(row, include_extras=True).items()}
    columns = [_column(field, hint) for field, (hint, of) in marks.items() if Mark.JOINED not in of and Mark.APPENDED not in of]
    appended = [_column(field, hint) for field, (hint, of) in marks.items() if Mark.APPENDED in of]
    if not any(column.primary_key for column in columns):
        columns.append(_column("id", Id))
    return sa.Table(name, metadata, *sorted(columns, key=lambda column: not column.primary_key), *items, *appended)


def created_column() -> sa.Column[datetime]:
    """The column ``created_at``, for tables whose row class leaves it out."""
    return _column("created_at", Created)


def _column(name: str, hint: Any) -> sa.Column[Any]:
    value, marks = _unwrapped(hint)
    members = get_args(value) if get_origin(value) in (Union, UnionType) else (value,)
    [member] = [member for member in members if member is not NoneType]
    inner, inner_marks = _unwrapped(member)
    marks += inner_marks
    by_python_type: sa.types.TypeEngine[Any] = sa.Text() if get_origin(inner) is Literal else _TYPES.get(inner, JSONB())
    primary = Mark.PRIMARY in marks
    foreign = [sa.ForeignKey(mark.column) for mark in marks if isinstance(mark, References)]
    return sa.Column(
        name,
        next((mark for mark in marks if isinstance(mark, sa.types.TypeEngine)), None) or by_python_type,
        *foreign,
        *([sa.Identity()] if primary and not foreign else []),
        primary_key=primary,
        nullable=not primary and (NoneType in members or Mark.NULLABLE in marks),
        unique=Mark.UNIQUE in marks or None,
        server_default=next((mark.value for mark in marks if isinstance(mark, Default)), None),
    )


def _unwrapped(hint: Any) -> tuple[Any, list[Any]]:
    """The type below ``Annotated``, and its annotations."""
    return (hint.__origin__, list(hint.__metadata__)) if get_origin(hint) is Annotated else (hint, [])


def as_row(kind: type[Row], row: sa.Row[Any]) -> Row:
    """Make a dataclass from a result row that has at least the columns it names."""
    values = row._mapping
    return kind(**{field.name: values[field.name] for field in fields(kind)})  # type: ignore[arg-type]  # a class of type Row is a dataclass here


def column_values(row: Any) -> dict[str, Any]:
    """Values of a row's columns by name, to be inserted."""
    return {field.name: getattr(row, field.name) for field in fields(row)}


def list_rows(conn: sa.Connection, kind: type[Row], statement: sa.Executable) -> list[Row]:
    """Run a query and make a dataclass of every result row."""
    result = conn.execute(statement)
    columns = list(result.keys())
    # Looked up once, as some queries have ten thousand rows. A row class has several fields, in the order of its arguments.
    values = itemgetter(*(columns.index(field.name) for field in fields(kind)))  # type: ignore[arg-type]  # as above
    return [kind(*values(row)) for row in result]


def find_row(conn: sa.Connection, kind: type[Row], statement: sa.Executable) -> Row | None:
    """Run a query with at most one result row and make a dataclass of it; None without a row."""
    row = conn.execute(statement).one_or_none()
    return None if row is None else as_row(kind, row)


def as_timestamp(time: np.datetime64) -> datetime:
    """A sample time as Postgres takes it."""
    moment: datetime = time.astype("datetime64[us]").item()
    return moment.replace(tzinfo=UTC)


def as_datetime64(moment: datetime) -> np.datetime64:
    """A time from Postgres as ``datetime64[us]``, the type of sample times."""
    return np.datetime64(moment.astimezone(UTC).replace(tzinfo=None), "us")
