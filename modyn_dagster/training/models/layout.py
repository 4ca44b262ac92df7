"""Layout of a model's inputs: named columns, shapes and their order."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.learning.models import takes_rows
from modyn_dagster.spec.training import GroupSpec, TrainingSpec
from modyn_dagster.training.parsing.function import Columns

#: Kinds of dtype a model can use: bool, signed, unsigned, float.
_NUMERIC: Final = frozenset("biuf")
#: Dtypes of groups beside floats.
_EXACT: Final = frozenset({"int32", "int64", "uint8", "bool"})
#: The name of a model's only input, and of the array by which a parser decides itself what the model sees.
ARRAY: Final = "features"


@dataclass(frozen=True, slots=True)
class Input:
    """Input tensor of a model.

    Attributes:
        name: name of the group; ``features`` where a model has one input.
        columns: names in order with their number of values per sample (above 1 for a sub-array); empty for an array.
        shape: shape of one sample.
        tabular: True for a row of float64 numbers, which may be standardised; other inputs reach the model unchanged.
        dtype: dtype of gathered columns; None for a parser's array, whose floats become float32 and other dtypes stay.
    """

    name: str
    columns: tuple[tuple[str, int], ...]
    shape: tuple[int, ...]
    tabular: bool
    dtype: str | None

    @property
    def n_features(self) -> int:
        """Values per sample."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Layout:
    """All inputs of a model; ``named`` ones reach it as keyword arguments, a single one by position."""

    inputs: tuple[Input, ...]
    named: bool = False

    @property
    def n_features(self) -> int | dict[str, int]:
        """Values per sample: a number for a single input, else by name."""
        if self.named:
            return {entry.name: entry.n_features for entry in self.inputs}
        return self.inputs[0].n_features

    @classmethod
    def of(cls, spec: TrainingSpec, columns: Columns, *, exclude: Collection[str], source: str) -> Self:
        """Derive the layout from spec and columns; ``ConfigError`` names a column that cannot be used."""
        if isinstance(spec.features, dict):
            groups = [_group(name, group, columns, spec, source) for name, group in spec.features.items()]
            return cls(tuple(groups), named=True)
        if spec.parser is not None and ARRAY in columns and spec.features == "numeric":
            require_numeric(columns, ARRAY, source)
            # Some built-in models take rows of numbers, whatever the shape of the array.
            tabular = takes_rows(spec.model)
            return cls((Input(ARRAY, (), columns[ARRAY].shape[1:], tabular, "float64" if tabular else None),))
        names = _numeric_columns(columns, exclude, source) if spec.features == "numeric" else spec.features
        return cls((_row(ARRAY, names, columns, "float64", source, tabular=True),))

    def value_names(self) -> tuple[str, ...]:
        """Names of the values of a sample: those of columns, with a number where a column has several values.

        >>> Layout((Input("features", (("size", 1), ("colour", 2)), (3,), True, "float64"),)).value_names()
        ('size', 'colour.0', 'colour.1')
        """
        named = [(column, width) for entry in self.inputs for column, width in entry.columns]
        named += [(entry.name, entry.n_features) for entry in self.inputs if not entry.columns]
        return tuple(name if width == 1 else f"{name}.{i}" for name, width in named for i in range(width))

    def shaped(self, shapes: Mapping[str, tuple[int, ...]]) -> Self:
        """Return the same inputs with other shapes."""
        return replace(self, inputs=tuple(replace(entry, shape=shapes[entry.name]) for entry in self.inputs))

    @property
    def groups(self) -> dict[str, Any] | None:
        """Named inputs in the form of ``training.features``; None for a single input."""
        if not self.named:
            return None
        exact = {entry.name: entry.dtype if entry.dtype in _EXACT else "float32" for entry in self.inputs}
        return {entry.name: {"columns": [name for name, _ in entry.columns], "dtype": exact[entry.name]} for entry in self.inputs}

    def to_json(self) -> dict[str, Any]:
        """Return the record of an architecture."""
        return {"inputs": [_to_json(entry) for entry in self.inputs]} if self.named else _to_json(self.inputs[0])

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Read the record of an architecture."""
        if "inputs" in content:
            return cls(tuple(_from_json(entry) for entry in content["inputs"]), named=True)
        return cls((_from_json(content),))


def width_of(columns: Columns, name: str, source: str) -> int:
    """Values per sample of a column; ``ConfigError`` if it is unknown or not numeric."""
    require_numeric(columns, name, source)
    return math.prod(columns[name].shape[1:])


def require_numeric(columns: Columns, name: str, source: str) -> None:
    """``ConfigError`` if a column is unknown or not numeric."""
    if name not in columns:
        raise ConfigError(source, "training.features", name, f"is not a column; known: {', '.join(columns) or 'none'}")
    if columns[name].dtype.kind not in _NUMERIC:
        raise ConfigError(source, "training.features", name, f"is not numeric but {columns[name].dtype}")


def _row(name: str, names: Collection[str], columns: Columns, dtype: str, source: str, *, tabular: bool) -> Input:
    widths = tuple((column, width_of(columns, column, source)) for column in names)
    return Input(name, widths, (sum(width for _, width in widths),), tabular, dtype)


def _group(name: str, group: GroupSpec, columns: Columns, spec: TrainingSpec, source: str) -> Input:
    if group.dtype == "float32":
        # Means and deviations are computed from all digits of the data; the cast to the model's precision comes afterwards.
        dtype = "float64" if spec.standardize or spec.precision == "64-true" else "float32"
        return _row(name, group.columns, columns, dtype, source, tabular=spec.standardize)
    for column in group.columns:
        require_numeric(columns, column, source)
        if columns[column].dtype.kind == "f":
            rule = f"is {columns[column].dtype}, which {group.dtype} cannot hold; make it a float32 group"
            raise ConfigError(source, f"training.features.{name}", column, rule)
    return _row(name, group.columns, columns, group.dtype, source, tabular=False)


def _numeric_columns(columns: Columns, exclude: Collection[str], source: str) -> list[str]:
    names = [name for name, column in columns.items() if column.dtype.kind in _NUMERIC and name not in exclude]
    if not names:
        known = ", ".join(columns) or "none"
        raise ConfigError(source, "training.features", "numeric", f"there is no numeric column to learn from; columns: {known}")
    return names


def _to_json(entry: Input) -> dict[str, Any]:
    content = {"columns": [list(column) for column in entry.columns], "shape": list(entry.shape), "tabular": entry.tabular}
    return (
        content
        if entry.name == ARRAY and entry.dtype in (None, "float64")
        else content | {"name": entry.name, "dtype": entry.dtype}
    )


def _from_json(content: Mapping[str, Any]) -> Input:
    columns = tuple((str(name), int(width)) for name, width in content["columns"])
    tabular = bool(content["tabular"])
    dtype = content.get("dtype", "float64" if tabular else None)
    return Input(str(content.get("name", ARRAY)), columns, tuple(content["shape"]), tabular, dtype)
