"""Layout of a model's inputs: named columns, shapes and their order."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.learning.models import takes_rows
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.columns.encoding import Encoding
from modyn_dagster.training.columns.input import ARRAY, Input
from modyn_dagster.training.columns.rows import group_inputs, require_numeric, row_input
from modyn_dagster.training.parsing.function import Columns

#: Dtypes of groups beside floats.
_EXACT: Final = frozenset({"int32", "int64", "uint8", "bool"})


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
            return cls(group_inputs(spec, spec.features, columns, exclude, source), named=True)
        if spec.parser is not None and ARRAY in columns and spec.features == "numeric":
            require_numeric(columns, ARRAY, source)
            for field in ("encode", "impute"):
                if rules := getattr(spec, field):
                    rule = f"the parser makes one array `{ARRAY}`, which has no columns"
                    raise ConfigError(source, f"training.{field}", next(iter(rules)), rule)
            # Some built-in models take rows of numbers, whatever the shape of the array.
            tabular = takes_rows(spec.model)
            return cls((Input(ARRAY, (), columns[ARRAY].shape[1:], tabular, "float64" if tabular else None),))
        return cls((row_input(spec, spec.features, columns, exclude, source),))

    @property
    def encodings(self) -> list[Encoding]:
        """Encodings of all columns that have one, each column once."""
        return list({each.column: each for entry in self.inputs for each in entry.encodings}.values())

    def fitted(self, encodings: Mapping[str, Encoding]) -> Self:
        """Return the layout with fitted encodings, by column, and the shapes that they give."""
        fitted = (replace(entry, encodings=tuple(encodings[each.column] for each in entry.encodings)) for entry in self.inputs)
        return replace(self, inputs=tuple(entry.sized() if entry.encodings else entry for entry in fitted))

    def of_shape(self) -> Self:
        """Return the layout without what differs between models of one shape: the sizes of vocabularies that have room."""
        return replace(
            self,
            inputs=tuple(
                replace(entry, encodings=tuple(each.shape_of_model() for each in entry.encodings)) for entry in self.inputs
            ),
        )

    def value_names(self) -> tuple[str, ...]:
        """Names of the values of a sample: those of columns, with a number where a column has or becomes several values.

        >>> Layout((Input("features", (("size", 1), ("colour", 2)), (3,), True, "float64"),)).value_names()
        ('size', 'colour.0', 'colour.1')
        """
        named = [(column, stop - start) for entry in self.inputs for column, _, start, stop in entry.parts()]
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
        return {"inputs": [entry.to_json() for entry in self.inputs]} if self.named else self.inputs[0].to_json()

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Read the record of an architecture."""
        if "inputs" in content:
            return cls(tuple(Input.from_json(entry) for entry in content["inputs"]), named=True)
        return cls((Input.from_json(content),))
