"""Samples to numbers: chosen columns side by side, or the array a parser makes of the samples' bytes."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import ConfigError, WrongShape
from modyn_dagster.imports import import_callable
from modyn_dagster.ingestion.samples import Samples
from modyn_dagster.spec.training import CustomSpec, TrainingSpec
from modyn_dagster.training.user_code import user_code

Columns = Mapping[str, npt.NDArray[Any]]

#: Kinds of dtype a model can use: bool, signed, unsigned, float.
_NUMERIC: Final = frozenset("biuf")
#: A parser that returns an array of this name decides itself what the model sees.
ARRAY: Final = "features"


@dataclass(frozen=True, slots=True)
class Layout:
    """What stands where in the model's input.

    Attributes:
        columns: names in order with their number of values per sample (above 1 for a sub-array); empty for an array.
        shape: the input of one sample.
        tabular: a row of float64 numbers, to be standardised; otherwise a parser's array, left as it is.
    """

    columns: tuple[tuple[str, int], ...]
    shape: tuple[int, ...]
    tabular: bool

    @property
    def n_features(self) -> int:
        """Values per sample."""
        return math.prod(self.shape)

    def to_json(self) -> dict[str, Any]:
        """For the recorded architecture."""
        return {"columns": [list(column) for column in self.columns], "shape": list(self.shape), "tabular": self.tabular}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The inverse of ``to_json``."""
        columns = tuple((str(name), int(width)) for name, width in content["columns"])
        return cls(columns, tuple(content["shape"]), bool(content["tabular"]))


class Parsing:
    """Columns of samples: as they were read, or what ``parser`` makes of their bytes."""

    def __init__(self, parser: str | None, source: str) -> None:
        self.parser, self.source = parser, source
        self._parse = import_callable(parser, source=source, field="training.parser") if parser is not None else None

    def __call__(self, samples: Samples) -> Columns:
        """Arrays of length n by name. ``ConfigError`` where the dataset has no bytes to parse."""
        if self._parse is None:
            return samples.columns
        if samples.blobs is None:
            raise ConfigError(self.source, "training.parser", self.parser, "these samples come as columns, not as bytes")
        with user_code(f"{self.source}: training.parser: {self.parser}"):
            parsed = self._parse(list(samples.blobs))
        if not isinstance(parsed, Mapping):
            raise ConfigError(
                self.source, "training.parser", self.parser, f"must return a dict of arrays, not {type(parsed).__name__}"
            )
        return {name: self._checked(name, np.asarray(array), len(samples)) for name, array in parsed.items()}

    def _checked(self, name: str, array: npt.NDArray[Any], n: int) -> npt.NDArray[Any]:
        if array.ndim == 0 or len(array) != n:
            raise WrongShape([n, "..."], array.shape, what=f"{self.source}: {self.parser}, array {name!r},")
        return array


class Features:
    """The model's input for samples, always laid out as ``layout`` says."""

    def __init__(self, layout: Layout, parsing: Parsing) -> None:
        self.layout, self.parsing = layout, parsing

    @classmethod
    def of(cls, spec: TrainingSpec, example: Samples, *, exclude: Collection[str], source: str) -> Self:
        """Find the layout in an example of the samples; ``ConfigError`` names a column that cannot be used."""
        parsing = Parsing(spec.parser, source)
        columns = parsing(example)
        if spec.parser is not None and ARRAY in columns and spec.features == "numeric":
            # The models in the box take rows of numbers, whatever the array's shape.
            tabular = not isinstance(spec.model, CustomSpec)
            _require_numeric(columns, ARRAY, source)
            return cls(Layout((), columns[ARRAY].shape[1:], tabular), parsing)
        names = _numeric_columns(columns, exclude, source) if spec.features == "numeric" else spec.features
        widths = tuple((name, _width(columns, name, source)) for name in names)
        return cls(Layout(widths, (sum(width for _, width in widths),), True), parsing)

    def __call__(self, samples: Samples) -> npt.NDArray[Any]:
        """``float64[n, n_features]`` if tabular, else the parser's array: floats as float32, other dtypes as they are."""
        columns = self.parsing(samples)
        if self.layout.columns:
            parts = [self._column(columns, name, width) for name, width in self.layout.columns]
            return np.concatenate(parts, axis=1, dtype=np.float64)
        array = self._array(columns)
        if self.layout.tabular:
            return array.reshape(len(array), -1).astype(np.float64)
        return array.astype(np.float32 if array.dtype.kind == "f" else array.dtype.newbyteorder("="))

    def _column(self, columns: Columns, name: str, width: int) -> npt.NDArray[Any]:
        found = _width(columns, name, self.parsing.source)
        if found != width:
            raise WrongShape(["n", width], columns[name].shape, what=f"{self.parsing.source}: column {name!r}")
        return columns[name].reshape(-1, width)

    def _array(self, columns: Columns) -> npt.NDArray[Any]:
        _require_numeric(columns, ARRAY, self.parsing.source)
        if columns[ARRAY].shape[1:] != self.layout.shape:
            what = f"{self.parsing.source}: {self.parsing.parser}"
            raise WrongShape(["n", *self.layout.shape], columns[ARRAY].shape, what=what)
        return columns[ARRAY]


def _numeric_columns(columns: Columns, exclude: Collection[str], source: str) -> list[str]:
    names = [name for name, column in columns.items() if column.dtype.kind in _NUMERIC and name not in exclude]
    if not names:
        known = ", ".join(columns) or "none"
        raise ConfigError(source, "training.features", "numeric", f"there is no numeric column to learn from; columns: {known}")
    return names


def _width(columns: Columns, name: str, source: str) -> int:
    _require_numeric(columns, name, source)
    return math.prod(columns[name].shape[1:])


def _require_numeric(columns: Columns, name: str, source: str) -> None:
    if name not in columns:
        raise ConfigError(source, "training.features", name, f"is not a column; known: {', '.join(columns) or 'none'}")
    if columns[name].dtype.kind not in _NUMERIC:
        raise ConfigError(source, "training.features", name, f"is not numeric but {columns[name].dtype}")
