"""Mapping between result rows and dataclasses, and between sample times in NumPy and in Postgres."""

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, TypeVar

import numpy as np
import sqlalchemy as sa

R = TypeVar("R")


def as_row(kind: type[R], row: sa.Row[Any]) -> R:
    """The columns a dataclass names, taken from a row that has at least those."""
    values = row._mapping
    return kind(**{field.name: values[field.name] for field in fields(kind)})  # type: ignore[arg-type]  # a class of type R is a dataclass here


def as_timestamp(time: np.datetime64) -> datetime:
    """A sample time as Postgres takes it."""
    moment: datetime = time.astype("datetime64[us]").item()
    return moment.replace(tzinfo=UTC)


def as_datetime64(moment: datetime) -> np.datetime64:
    """A time from Postgres as samples have it, ``datetime64[us]``."""
    return np.datetime64(moment.astimezone(UTC).replace(tzinfo=None), "us")
