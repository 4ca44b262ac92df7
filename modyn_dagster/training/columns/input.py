"""One input tensor of a model: named columns, encodings and shape."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from modyn_dagster.training.columns.encoding import Encoding

#: The name of a model's only input, and of the array by which a parser decides itself what the model sees.
ARRAY: Final = "features"


@dataclass(frozen=True, slots=True)
class Input:
    """Input tensor of a model.

    Attributes:
        name: name of the group; ``features`` where a model has one input.
        columns: names in order with their number of values per sample (above 1 for a sub-array); empty for an array.
        shape: shape of one sample, with columns encoded.
        tabular: True for a row of float64 numbers, which may be standardised; other inputs reach the model unchanged.
        dtype: dtype of gathered columns; None for a parser's array, whose floats become float32 and other dtypes stay.
        encodings: of the columns that are encoded or imputed.
    """

    name: str
    columns: tuple[tuple[str, int], ...]
    shape: tuple[int, ...]
    tabular: bool
    dtype: str | None
    encodings: tuple[Encoding, ...] = ()

    @property
    def n_features(self) -> int:
        """Values per sample."""
        return math.prod(self.shape)

    def parts(self) -> Iterator[tuple[str, Encoding | None, int, int]]:
        """Columns in order: name, encoding, and the bounds of what they become in the row."""
        encodings, start = {each.column: each for each in self.encodings}, 0
        for name, width in self.columns:
            encoding = encodings.get(name)
            stop = start + (width if encoding is None else encoding.width)
            yield name, encoding, start, stop
            start = stop

    def sized(self) -> Self:
        """Return the input of columns with the shape of its row."""
        return replace(self, shape=(max((stop for *_, stop in self.parts()), default=0),))

    @property
    def unscaled(self) -> list[int]:
        """Places in the row that standardisation leaves alone: truth values and numbers of encoded columns."""
        return [start + i for _, encoding, start, _ in self.parts() if encoding is not None for i in encoding.unscaled]

    def to_json(self) -> dict[str, Any]:
        """Return the record of an architecture."""
        content: dict[str, Any] = {
            "columns": [list(column) for column in self.columns],
            "shape": list(self.shape),
            "tabular": self.tabular,
        }
        if self.encodings:
            content["encodings"] = [each.to_json() for each in self.encodings]
        return (
            content
            if self.name == ARRAY and self.dtype in (None, "float64")
            else content | {"name": self.name, "dtype": self.dtype}
        )

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Read the record of an architecture."""
        columns = tuple((str(name), int(width)) for name, width in content["columns"])
        tabular = bool(content["tabular"])
        dtype = content.get("dtype", "float64" if tabular else None)
        encodings = tuple(Encoding.from_json(each) for each in content.get("encodings", ()))
        return cls(str(content.get("name", ARRAY)), columns, tuple(content["shape"]), tabular, dtype, encodings)
