"""Choice of columns by name, dtype and pattern, and the rules of ``encode`` and ``impute`` that apply to them."""

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.learning.features import ImputeSpec, SelectorSpec
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.columns.encoding import Encoding, Rule
from modyn_dagster.training.parsing.function import Columns

#: Kinds of dtype a model can use: bool, signed, unsigned, float.
NUMERIC: Final = frozenset("biuf")
#: Kinds of dtype of texts: objects, bytes, Unicode.
_TEXT: Final = frozenset("OSU")


def selected(
    columns: Sequence[str | SelectorSpec], known: Columns, exclude: Collection[str], *, source: str, field: str
) -> list[str]:
    """Names of a list of columns, each once, in its order; ``ConfigError`` for a selector of no column.

    Args:
        columns: names and selectors.
        known: columns of samples.
        exclude: columns that selectors leave out.
        source: name of the pipeline, for errors.
        field: field of the list, for errors.
    """
    names: dict[str, None] = {}
    listed = {column for column in columns if isinstance(column, str)}
    for i, column in enumerate(columns):
        if isinstance(column, str):
            names[column] = None
            continue
        found = [name for name, array in known.items() if name not in exclude and _selects(column, name, array)]
        if not found:
            shown = column.model_dump(exclude_defaults=True)
            rule = f"selects no column; known: {', '.join(f'{name} ({_dtype(known[name])})' for name in known) or 'none'}"
            raise ConfigError(source, f"{field}.{i}", shown, rule)
        # A column that is listed by name has its place there.
        names |= {name: None for name in found if name not in listed}
    return list(names)


def encodings_of(spec: TrainingSpec, names: Collection[str], known: Columns, source: str) -> dict[str, Encoding]:
    """Encodings of the chosen columns by name, before they are fitted; ``ConfigError`` for a rule of none, or of an unfit one."""
    reserve = bool(spec.use_previous_model)
    return {name: Encoding.of(name, rule, reserve=reserve) for name, rule in rules_of(spec, names, known, source).items()}


def rules_of(spec: TrainingSpec, names: Collection[str], known: Columns, source: str) -> dict[str, Rule]:
    """Rules of the chosen columns by name.

    A rule under a column's own name goes before patterns, and of these the first applies. Patterns of ``encode`` pass columns
    of floats over, those of ``impute`` all others.
    """
    found: dict[str, Rule] = {}
    chosen = {name: known[name] for name in names if name in known}
    for field, rules in (("encode", spec.encode), ("impute", spec.impute)):
        for key, rule in rules.items():
            if key in known:
                _require_fit(f"training.{field}", key, known[key], rule, chosen, source)
            elif not any(_may(rule, array) and fnmatchcase(name, key) for name, array in chosen.items()):
                rule_of = "matches no feature that it could be for" if set(key) & set("*?[") else "is not a column"
                shown = ", ".join(f"{name} ({_dtype(array)})" for name, array in chosen.items()) or "none"
                raise ConfigError(source, f"training.{field}", key, f"{rule_of}; features: {shown}")
    for name, array in chosen.items():
        if (applying := _rule_for(spec.encode, name, array, known) or _rule_for(spec.impute, name, array, known)) is not None:
            found[name] = applying
    return found


def encoded_names(spec: TrainingSpec, known: Columns, exclude: Collection[str], source: str) -> set[str]:
    """Columns that ``features: numeric`` takes beside numbers: those that ``encode`` names or matches."""
    for key in spec.encode:
        if key in exclude:
            rule = "is time, id, label or an attribute, which `features: numeric` leaves out: list the features to use it"
            raise ConfigError(source, "training.encode", key, rule)
    return {
        name for name, array in known.items() if name not in exclude and _rule_for(spec.encode, name, array, known) is not None
    }


def _rule_for(rules: Mapping[str, Rule], name: str, array: npt.NDArray[Any], known: Columns) -> Rule | None:
    if name in rules:
        return rules[name]
    matching = (rule for key, rule in rules.items() if key not in known and fnmatchcase(name, key) and _may(rule, array))
    return next(matching, None)


def _selects(selector: SelectorSpec, name: str, array: npt.NDArray[Any]) -> bool:
    if selector.pattern is not None and not fnmatchcase(name, selector.pattern):
        return False
    if any(fnmatchcase(name, each) for each in selector.without):
        return False
    match selector.dtype:
        case None:
            return array.dtype.kind in NUMERIC | _TEXT
        case "numeric":
            return array.dtype.kind in NUMERIC
        case "string":
            return array.dtype.kind in _TEXT
    return bool(array.dtype.newbyteorder("=") == np.dtype(selector.dtype))


def _may(rule: Rule, array: npt.NDArray[Any]) -> bool:
    """Test that a rule can apply to a column: floats are imputed, all else is encoded."""
    kinds = {"f"} if isinstance(rule, ImputeSpec) else (_TEXT | NUMERIC) - {"f"}
    return array.ndim == 1 and array.dtype.kind in kinds


def _require_fit(field: str, name: str, array: npt.NDArray[Any], rule: Rule, chosen: Mapping[str, object], source: str) -> None:
    if name not in chosen:
        raise ConfigError(source, field, name, "is no feature: add it to `training.features`, or remove it here")
    if _may(rule, array):
        return
    if array.ndim > 1:
        raise ConfigError(source, field, name, f"has {list(array.shape[1:])} values per sample, and only one can be handled")
    if isinstance(rule, ImputeSpec):
        remedy = (
            "a missing text is a value of its own, see `encode`" if array.dtype.kind in _TEXT else "only floats can be missing"
        )
        raise ConfigError(source, field, name, f"is {_dtype(array)}: {remedy}")
    raise ConfigError(source, field, name, f"is {_dtype(array)}: text, integers and truth values can be encoded")


def _dtype(array: npt.NDArray[Any]) -> str:
    return "string" if array.dtype.kind in _TEXT else str(array.dtype)
