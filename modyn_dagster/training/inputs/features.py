"""Arrays of a model's inputs, made of samples."""

from collections.abc import Collection
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fastpath import Columns as RowColumns
from modyn_dagster.data.samples import Samples
from modyn_dagster.errors import WrongShape
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.columns.encoders import NO_ENCODERS, Encoders
from modyn_dagster.training.columns.input import ARRAY, Input
from modyn_dagster.training.columns.rows import encodable, not_text, require_numeric, width_of
from modyn_dagster.training.memory import Arrays
from modyn_dagster.training.models.layout import Layout
from modyn_dagster.training.parsing.function import Blobs, Columns
from modyn_dagster.training.parsing.parser import Parsing


class Features:
    """A model's inputs for samples, always laid out as ``layout`` says, with the columns that ``encoders`` know encoded."""

    def __init__(self, layout: Layout, parsing: Parsing, encoders: Encoders = NO_ENCODERS) -> None:
        self.layout, self.parsing, self.encoders = layout, parsing, encoders

    @classmethod
    def of(cls, spec: TrainingSpec, example: Samples, parsing: Parsing, *, exclude: Collection[str]) -> Self:
        """Find the layout in an example of the samples; ``ConfigError`` names a column that cannot be used."""
        layout = Layout.of(spec, parsing(example), exclude=exclude, source=parsing.source)
        return cls(layout, parsing)

    def __call__(self, samples: Samples) -> Arrays:
        """Arrays of samples as readers return them."""
        return self.of_columns(self.parsing(samples), samples.keys)

    def of_blobs(self, keys: KeyArray, blobs: Blobs) -> Arrays:
        """Arrays parsed from the samples' bytes."""
        return self.of_columns(self.parsing.of_blobs(keys, blobs), keys)

    def of_columns(self, columns: Columns, keys: KeyArray) -> Arrays:
        """Arrays of named columns, or of a parser's output, for samples with these keys."""
        return {
            each.name: self._row(columns, each, keys) if each.columns else self._array(columns, each)
            for each in self.layout.inputs
        }

    def of_rows(self, dtype: np.dtype[Any]) -> RowColumns | None:
        """The same straight from rows of a structured dtype: what a batch stream is to gather; None for encoded columns."""
        if self.layout.encodings:
            return None
        return RowColumns(dtype, {each.name: ([name for name, _ in each.columns], each.dtype) for each in self.layout.inputs})

    def _row(self, columns: Columns, each: Input, keys: KeyArray) -> npt.NDArray[Any]:
        if each.encodings:
            return self._encoded_row(columns, each, keys)
        parts = [self._numbers(columns, name, width) for name, width in each.columns]
        return np.concatenate(parts, axis=1, dtype=each.dtype, casting="unsafe")

    def _numbers(self, columns: Columns, name: str, width: int) -> npt.NDArray[Any]:
        if width_of(columns, name, self.parsing.source) != width:
            raise WrongShape(["n", width], columns[name].shape, what=f"{self.parsing.source}: column {name!r}")
        return columns[name].reshape(-1, width)

    def _encoded_row(self, columns: Columns, each: Input, keys: KeyArray) -> npt.NDArray[Any]:
        row = np.zeros((len(keys), each.n_features), dtype=each.dtype)
        for name, encoding, start, stop in each.parts():
            if encoding is None:
                np.copyto(row[:, start:stop], self._numbers(columns, name, stop - start), casting="unsafe")
                continue
            column = encodable(columns, name, self.parsing.source)
            try:
                self.encoders[name].into(column, row[:, start:stop])
            except pa.ArrowException as error:
                raise not_text(column, name, keys, self.parsing.source) from error
        return row

    def _array(self, columns: Columns, each: Input) -> npt.NDArray[Any]:
        require_numeric(columns, ARRAY, self.parsing.source)
        array = columns[ARRAY]
        if array.shape[1:] != each.shape:
            what = f"{self.parsing.source}: {self.parsing.name}"
            raise WrongShape(["n", *each.shape], array.shape, what=what)
        if each.tabular:
            return array.reshape(len(array), -1).astype(np.float64)
        return array.astype(np.float32 if array.dtype.kind == "f" else array.dtype.newbyteorder("="), copy=False)
