"""Guesses of the columns with the label and the id of a sample, and of those that models may learn from."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from modyn_dagster.cli.init.look import LISTED, Look, listed, refused
from modyn_dagster.data.rows.row_decoding import is_sub_array
from modyn_dagster.spec.reading.complaints import probable

LabelKind = Literal["class", "target"]

#: Names that say it, the surest first.
LABELS: Final = ("label", "target", "class", "y", "outcome", "is_fraud", "churn", "clicked")
IDS: Final = ("id", "uuid", "guid", "sample_id", "row_id", "key")
#: Names of columns that name something, and so say nothing about it.
_NAMING: Final = re.compile(r"(^|[^a-z0-9])(id|uuid|guid|index)$|^unnamed: 0$|^$", re.IGNORECASE)
_CAMEL: Final = re.compile(r"[a-z0-9](Id|ID)$")
#: Integers are classes if there are at most so many of them, and none is this large.
_CLASSES: Final = 20
_LARGEST: Final = 100
#: Names of classes that a spec lists.
_NAMED: Final = 50
#: Values of a column that becomes one column per value.
_CATEGORIES: Final = 50


@dataclass(frozen=True)
class LabelColumn:
    """A column with the label.

    Attributes:
        column: its name.
        kind: of the label.
        classes: names, if all are known; empty else.
        n_classes: number of integer classes, if all are known.
        reason: of the choice.
    """

    column: str
    kind: LabelKind
    classes: Sequence[str]
    n_classes: int | None
    reason: str


def label_guess(look: Look, taken: Sequence[str]) -> str | None:
    """The column whose name says most surely that it is the label; None where none does."""
    names = {name.casefold(): name for name in reversed(look.names) if name not in taken}
    return next((names[known] for known in LABELS if known in names), None)


def choose_label(look: Look, given: str | None, kind: LabelKind | None, taken: Sequence[str]) -> LabelColumn:
    """Choose the label: the given column, or the one whose name says it.

    Raises ``ConfigError``, naming column and option, where there is none, or nothing can be learnt of it.
    """
    column = given if given is not None else label_guess(look, taken)
    if column is None:
        rest = [name for name in look.names if name not in taken]
        rule = f"no column is called {', '.join(LABELS)}: say with --label which column is to be predicted"
        raise refused("--label", rest[:LISTED], rule)
    _require_free(look, "--label", column, taken)
    values = look.first.values[column]
    _require_labels(look, column, values)
    distinct = [value for value in pc.unique(values).to_pylist() if value is not None]
    is_text = isinstance(distinct[0], str)
    chosen = kind or ("class" if is_text or _are_classes(distinct) else "target")
    if fault := _misfit(distinct, chosen):
        raise refused("--label-kind", chosen, f"column {column!r} {fault}")
    if fault := _dull(look, distinct, len(values), chosen):
        raise refused("--label", column, f"column {column!r} {fault}, of which nothing can be learnt: name another with --label")
    is_listed = chosen == "class" and look.is_whole
    classes = sorted(distinct) if is_listed and is_text and len(distinct) <= _NAMED else []
    # Truth values are classes as they are, but no numbers that a spec could bound.
    n_classes = max(2, 1 + int(max(distinct))) if is_listed and type(distinct[0]) is int else None
    reason = "named by --label" if given is not None else "its name is the surest"
    return LabelColumn(column, chosen, classes, n_classes, f"{reason}; {chosen}, as it has {_described(distinct)}")


def _misfit(distinct: Sequence[object], kind: LabelKind) -> str | None:
    """Reason for which values are no labels of a kind."""
    example = distinct[0]
    if kind == "target" and isinstance(example, str | bool):
        return f"has no numbers, such as {example!r}: it is a class"
    if kind == "class" and isinstance(example, float):
        return f"has fractions, such as {example!r}: it is a target, or write classes as integers or text"
    if kind == "class" and isinstance(example, int) and (least := min(each for each in distinct if isinstance(each, int))) < 0:
        return f"has {least}, and classes are numbers from 0 on, or text"
    return None


def _dull(look: Look, distinct: Sequence[object], n: int, kind: LabelKind) -> str | None:
    if kind == "class" and isinstance(distinct[0], str) and len(distinct) == n > 2:
        return "has another text in every row"
    return f"has one value in all rows, {distinct[0]!r}" if len(distinct) == 1 and look.is_whole else None


def id_guess(look: Look, project: str, taken: Sequence[str]) -> str | None:
    """The column whose name says that it is the id, and which has another value in every row looked at; None where none does."""
    names = {name.casefold(): name for name in reversed(look.names) if name not in taken}
    for known in (*IDS, f"{project}_id".casefold()):
        if known in names and _fault_of_id(look.first.values[names[known]]) is None:
            return names[known]
    return None


def require_id(look: Look, column: str, taken: Sequence[str]) -> None:
    """Refuse a given id that is no column, or does not name samples. Raises ``ConfigError``."""
    _require_free(look, "--id", column, taken)
    fault = _fault_of_id(look.first.values[column])
    if fault is not None:
        raise refused("--id", column, f"column {column!r} cannot be the id: {fault}; name another with --id, or none")


class Features(NamedTuple):
    """Columns that models may learn from: numbers, texts of few values, other texts; ``naming`` ones name something."""

    numbers: list[str]
    categories: list[str]
    texts: list[str]
    naming: list[str]


def features(look: Look, taken: Sequence[str]) -> Features:
    """Choose the columns that models may learn from."""
    rest = [column for column in look.first.columns if column.name not in taken]
    naming = [each.name for each in rest if _NAMING.search(each.name) or _CAMEL.search(each.name)]
    numbers = [each.name for each in rest if each.name not in naming and _is_numeric(each.dtype)]
    texts = [each.name for each in rest if each.name not in naming and each.dtype == "string"]
    categories = [name for name in texts if _is_category(look.first.values[name])]
    return Features(numbers, categories, [name for name in texts if name not in categories], naming)


def _is_numeric(dtype: str) -> bool:
    return dtype in ("int64", "float64", "bool") or is_sub_array(dtype)


def _is_category(texts: pa.Array) -> bool:
    """Test that texts are few values that come again and again."""
    n_values = len(pc.unique(texts))
    return 1 < n_values <= min(_CATEGORIES, len(texts) // 3)


def _require_free(look: Look, option: str, column: str, taken: Sequence[str]) -> None:
    if column not in look.names:
        raise refused(option, column, f"must be a column of the data, one of {listed(look.names)}{probable(column, look.names)}")
    if column in taken:
        raise refused(option, column, f"column {column!r} has another role already: name another with {option}")


def _require_labels(look: Look, column: str, values: pa.Array) -> None:
    """Refuse a column that lacks labels."""
    missing = pc.is_null(values, nan_is_null=True)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        missing = pc.or_(missing, pc.equal(pc.utf8_trim_whitespace(values.fill_null("")), ""))
    n_missing = pc.sum(missing).as_py() or 0
    if n_missing == len(values):
        where = "every row" if look.is_whole else "all rows that were looked at"
        raise refused("--label", column, f"column {column!r} is empty in {where}: name another with --label")
    if n_missing:
        row = pc.index(missing, True).as_py() + 1
        remedy = "complete them or remove them, as every sample needs its label; or name another with --label"
        raise refused("--label", column, f"column {column!r} is empty in {n_missing} rows, first in row {row}: {remedy}")


def _are_classes(distinct: Sequence[bool | int | float]) -> bool:
    if any(isinstance(value, float) for value in distinct):
        return False
    return len(distinct) <= _CLASSES and min(distinct) >= 0 and max(distinct) < _LARGEST


def _described(distinct: Sequence[object]) -> str:
    kinds = {str: "texts", bool: "truth values", int: "whole numbers", float: "fractions"}
    return f"{len(distinct)} different {kinds.get(type(distinct[0]), 'values')}"


def _fault_of_id(values: pa.Array) -> str | None:
    if not (pa.types.is_integer(values.type) or pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return "it is neither whole numbers nor text, or misses some"
    if values.null_count or pc.any(pc.equal(values.cast(pa.string()), "")).as_py():
        return "it is empty in some rows"
    counts = pc.value_counts(values)
    repeated = pc.greater(counts.field("counts"), 1)
    if pc.any(repeated).as_py():
        twice = counts.field("values")[pc.index(repeated, True).as_py()].as_py()
        return f"{twice!r} stands in several rows"
    return None
