"""From a result row to the frozen dataclass that names its columns."""

from dataclasses import fields
from typing import Any, TypeVar

import sqlalchemy as sa

R = TypeVar("R")


def as_row(kind: type[R], row: sa.Row[Any]) -> R:
    """The columns a dataclass names, taken from a row that has at least those."""
    values = row._mapping
    return kind(**{field.name: values[field.name] for field in fields(kind)})  # type: ignore[arg-type]  # a class of type R is a dataclass here
