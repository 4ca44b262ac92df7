"""Inputs of a model, derived from its spec and the columns of samples."""

import math
from collections.abc import Collection, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import BadSample, ConfigError, WrongShape
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.learning.features import ColumnList
from modyn_dagster.spec.training import GroupSpec, TrainingSpec
from modyn_dagster.training.columns.encoding import Encoding
from modyn_dagster.training.columns.input import ARRAY, Input
from modyn_dagster.training.columns.selection import NUMERIC, encoded_names, encodings_of, selected
from modyn_dagster.training.parsing.function import Columns


def width_of(columns: Columns, name: str, source: str) -> int:
    """Values per sample of a column; ``ConfigError`` if it is unknown or not numeric."""
    require_numeric(columns, name, source)
    return math.prod(columns[name].shape[1:])


def require_numeric(columns: Columns, name: str, source: str) -> None:
    """``ConfigError`` if a column is unknown or not numeric."""
    if name not in columns:
        raise ConfigError(source, "training.features", name, f"is not a column; known: {', '.join(columns) or 'none'}")
    if (dtype := columns[name].dtype).kind in "OSU":
        rule = "is text: give it an encoding under `training.encode` (one_hot, hash, embedding, number), or leave it out"
        raise ConfigError(source, "training.features", name, rule)
    if dtype.kind not in NUMERIC:
        raise ConfigError(source, "training.features", name, f"is not numeric but {dtype}")


def encodable(columns: Columns, name: str, source: str) -> npt.NDArray[Any]:
    """Column with one value per sample; ``ConfigError`` if it is unknown, ``WrongShape`` if it has several."""
    if name not in columns:
        raise ConfigError(source, "training.features", name, f"is not a column; known: {', '.join(columns) or 'none'}")
    column = columns[name]
    if column.ndim != 1:
        raise WrongShape(["n"], column.shape, what=f"{source}: column {name!r}")
    return column


def not_text(column: npt.NDArray[Any], name: str, keys: KeyArray, source: str) -> BadSample:
    """Error that names the first sample whose value is no text."""
    what = f"{source}: training.encode: column {name!r}"
    wrong = (i for i, value in enumerate(column.tolist()) if value is not None and not isinstance(value, str | bytes))
    first = next(wrong, 0)
    return BadSample(what, int(keys[first]), f"{column[first]!r} is no text")


def row_input(
    spec: TrainingSpec,
    features: ColumnList | Literal["numeric"],
    columns: Columns,
    exclude: Collection[str],
    source: str,
) -> Input:
    """Single input of a model: a row of numbers; ``ConfigError`` names a column that cannot be used."""
    if features == "numeric":
        names = _numeric_columns(spec, columns, exclude, source)
    else:
        names = selected(features, columns, exclude, source=source, field="training.features")
    return _row(ARRAY, names, columns, "float64", encodings_of(spec, names, columns, source), source, tabular=True)


def group_inputs(
    spec: TrainingSpec, groups: Mapping[str, GroupSpec], columns: Columns, exclude: Collection[str], source: str
) -> tuple[Input, ...]:
    """Inputs of groups of columns; ``ConfigError`` names a column that cannot be used."""
    names = {
        name: selected(group.columns, columns, exclude, source=source, field=f"training.features.{name}.columns")
        for name, group in groups.items()
    }
    encodings = encodings_of(spec, [column for each in names.values() for column in each], columns, source)
    return tuple(_group(name, group, names[name], columns, spec, encodings, source) for name, group in groups.items())


def _row(
    name: str,
    names: Collection[str],
    columns: Columns,
    dtype: str,
    encodings: Mapping[str, Encoding],
    source: str,
    *,
    tabular: bool,
) -> Input:
    widths = tuple((column, 1 if column in encodings else width_of(columns, column, source)) for column in names)
    own = tuple(encodings[column] for column in names if column in encodings)
    return Input(name, widths, (), tabular, dtype, own).sized()


def _group(
    name: str,
    group: GroupSpec,
    names: Collection[str],
    columns: Columns,
    spec: TrainingSpec,
    encodings: Mapping[str, Encoding],
    source: str,
) -> Input:
    if group.dtype == "float32":
        # Means and deviations are computed from all digits of the data; the cast to the model's precision comes afterwards.
        dtype = "float64" if spec.standardize or spec.precision == "64-true" else "float32"
        return _row(name, names, columns, dtype, encodings, source, tabular=spec.standardize)
    for column in names:
        if column in encodings and encodings[column].kind != "impute":
            _require_room(f"training.features.{name}", group.dtype, encodings[column], source)
            continue
        require_numeric(columns, column, source)
        if columns[column].dtype.kind == "f":
            rule = f"is {columns[column].dtype}, which {group.dtype} cannot hold; make it a float32 group"
            raise ConfigError(source, f"training.features.{name}", column, rule)
    return _row(name, names, columns, group.dtype, encodings, source, tabular=False)


def _require_room(field: str, dtype: str, encoding: Encoding, source: str) -> None:
    """``ConfigError`` if numbers of an encoding do not fit into a dtype."""
    most = 1 if encoding.kind in ("one_hot", "hash") else encoding.rows - 1
    if most > (1 if dtype == "bool" else np.iinfo(dtype).max):
        raise ConfigError(source, field, encoding.column, f"has numbers up to {most}, which {dtype} cannot hold")


def _numeric_columns(spec: TrainingSpec, columns: Columns, exclude: Collection[str], source: str) -> list[str]:
    encoded = encoded_names(spec, columns, exclude, source)
    names = [
        name for name, column in columns.items() if name in encoded or (column.dtype.kind in NUMERIC and name not in exclude)
    ]
    if not names:
        known = ", ".join(columns) or "none"
        raise ConfigError(source, "training.features", "numeric", f"there is no numeric column to learn from; columns: {known}")
    return names
