"""Fields of the conditions of a deletion: label, target, time and attributes, each with parser and operators."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Final

import numpy as np
import sqlalchemy as sa

from modyn_dagster.catalog.datasets import DatasetRow, sample
from modyn_dagster.spec.dataset import DatasetSpec

EQUALITY: Final = ("=", "!=")
ORDER: Final = (*EQUALITY, "<", "<=", ">", ">=")
#: Largest decimal exponent of a double.
_LARGEST_EXPONENT: Final = 307


@dataclass(frozen=True)
class Field:
    """A field of a condition.

    Attributes:
        column: expression in Postgres.
        parse: from the text of a value to a value for Postgres; its ``ValueError`` names the expected form.
        operators: defined for the field.
    """

    column: sa.ColumnElement[Any]
    parse: Callable[[str], Any]
    operators: tuple[str, ...] = ORDER


def fields_of(spec: DatasetSpec, dataset: DatasetRow) -> dict[str, Field]:
    """Fields of a dataset by name; names of attributes begin with ``attributes.``."""
    fields = {"time": Field(sample.c.time, _time)}
    if spec.label is not None and spec.label.kind == "target":
        fields["target"] = Field(sample.c.target, _number)
    elif spec.label is not None and dataset.class_names:
        index_of = {name: index for index, name in enumerate(dataset.class_names)}
        fields["label"] = Field(sample.c.label, partial(_class_index, index_of), EQUALITY)
    elif spec.label is not None:
        fields["label"] = Field(sample.c.label, _number)
    dtypes = {column.name: column.dtype for column in dataset.columns or ()}
    for name in spec.attributes:
        if name in dtypes:
            fields[f"attributes.{name}"] = _attribute(name, dtypes[name])
    return fields


def _attribute(name: str, dtype: str) -> Field:
    text = sample.c.attributes[name].astext
    kind = {"string": "U", "timestamp": "M"}.get(dtype) or np.dtype(dtype).kind
    if kind in "iu":
        return Field(sa.cast(text, sa.Numeric), _number)
    if kind == "f":
        return Field(sa.cast(text, sa.Double), _number)
    if kind == "b":
        return Field(sa.cast(text, sa.Boolean), _boolean, EQUALITY)
    if kind == "M":
        return Field(sa.cast(text, sa.DateTime(timezone=True)), _time)
    return Field(text, _text)


def _text(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain a null character, which no attribute contains")
    return text


def _time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("must be a time in ISO 8601, like 2024-01-01 or '2024-01-01 12:30'") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _number(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError("must be a number") from None
    if not number.is_finite() or abs(number.adjusted()) > _LARGEST_EXPONENT:
        raise ValueError("must be a finite number")
    return number


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _class_index(index_of: Mapping[str, int], text: str) -> int:
    if text not in index_of:
        raise ValueError(f"must be a class of the dataset: {', '.join(index_of)}")
    return index_of[text]
