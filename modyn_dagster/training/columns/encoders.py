"""Fitted encoders: from columns to numbers, and their state as arrays of a model."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from modyn_dagster.training.columns.encoding import Encoding
from modyn_dagster.training.columns.vocabulary import Vocabulary, as_bytes, distinct_of, packed, unpacked

#: Arrays of a fitted state by name.
State = dict[str, npt.NDArray[Any]]
# Not by `pa.array`, which imports pandas where there is one.
_NO_VALUES: Final = Vocabulary(pa.nulls(0, pa.large_binary()), knows_unknown=False)


@dataclass(frozen=True, slots=True)
class Encoder:
    """Encoder of one column.

    Attributes:
        encoding: form of the encoding.
        vocabulary: values with numbers; empty for other encodings.
        fill: number in place of a missing one.
    """

    encoding: Encoding
    vocabulary: Vocabulary = _NO_VALUES
    fill: float = 0.0

    @classmethod
    def of(cls, encoding: Encoding, *, vocabulary: Vocabulary | None = None, fill: float = 0.0) -> Self:
        """Return the encoder of a fitted vocabulary or fill."""
        if vocabulary is None:
            return cls(encoding, fill=fill)
        n_bytes = len(packed(vocabulary.values)[0])
        return cls(replace(encoding, n_values=len(vocabulary.values), n_bytes=n_bytes), vocabulary)

    def into(self, column: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
        """Encode a column of n samples into zeros, ``[n, width]``.

        Raises ``pyarrow.ArrowException`` for values that are no texts, integers or truth values.
        """
        match self.encoding.kind:
            case "impute":
                missing = ~np.isfinite(column)
                out[:, 0] = column
                out[missing, 0] = self.fill
                if self.encoding.indicator:
                    out[:, 1] = missing
            case "one_hot":
                numbers = self._numbers(column)
                rows = np.arange(len(numbers))
                if not self.vocabulary.knows_unknown:
                    # No training saw such a sample, so a model has nothing to say of it.
                    rows, numbers = rows[numbers > 0], numbers[numbers > 0]
                out[rows, numbers] = 1
            case "hash":
                out[np.arange(len(column)), self._numbers(column)] = 1
            case _:
                out[:, 0] = self._numbers(column)

    def _numbers(self, column: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        values = as_bytes(column)
        return self.vocabulary.numbers(values) if self.encoding.has_vocabulary else _hashed(values, self.encoding.buckets)

    def state(self) -> State:
        """Arrays of the fitted values, whose shapes the encoding tells."""
        if self.encoding.kind == "impute":
            return {"fill": np.array([self.fill])}
        if not self.encoding.has_vocabulary:
            return {}
        text, offsets = packed(self.vocabulary.values)
        return {"values": text, "offsets": offsets, "knows_unknown": np.array([self.vocabulary.knows_unknown])}

    @classmethod
    def of_state(cls, encoding: Encoding, state: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Inverse of ``state``; ``ValueError`` for arrays that are none."""
        if encoding.kind == "impute":
            return cls(encoding, fill=float(state["fill"][0]))
        if not encoding.has_vocabulary:
            return cls(encoding)
        return cls(encoding, Vocabulary(unpacked(state["values"], state["offsets"]), bool(state["knows_unknown"][0])))

    @staticmethod
    def empty_state(encoding: Encoding) -> State:
        """Arrays of the shapes and dtypes of a state, all zero."""
        if encoding.kind == "impute":
            return {"fill": np.zeros(1)}
        if not encoding.has_vocabulary:
            return {}
        offsets = np.zeros(encoding.n_values + 1, dtype=np.int64)
        return {"values": np.zeros(encoding.n_bytes, np.uint8), "offsets": offsets, "knows_unknown": np.zeros(1, np.bool_)}


def _hashed(values: pa.LargeBinaryArray, buckets: int) -> npt.NDArray[np.int64]:
    """Buckets of values, ``int64[n]``: their XXH32, modulo the buckets."""
    distinct, places = distinct_of(values)
    return (np.fromiter(map(xxhash.xxh32_intdigest, distinct), np.int64, len(distinct)) % buckets)[places]


@dataclass(frozen=True, slots=True)
class Encoders:
    """Encoders of a model's columns by name."""

    by_column: Mapping[str, Encoder] = field(default_factory=dict)

    def __getitem__(self, column: str) -> Encoder:
        return self.by_column[column]

    def state(self) -> State:
        """Arrays of all fitted values, in the order of the columns: ``0.values``, ``1.fill``, ..."""
        return {f"{i}.{name}": array for i, each in enumerate(self.by_column.values()) for name, array in each.state().items()}

    @classmethod
    def of_state(cls, encodings: Iterable[Encoding], state: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Inverse of ``state``; ``ValueError`` for arrays that do not belong to these encodings."""

        def part(i: int) -> State:
            return {name.partition(".")[2]: array for name, array in state.items() if name.partition(".")[0] == str(i)}

        return cls({each.column: Encoder.of_state(each, part(i)) for i, each in enumerate(encodings)})

    @staticmethod
    def empty_state(encodings: Iterable[Encoding]) -> State:
        """Arrays of the shapes and dtypes of a state, all zero."""
        return {f"{i}.{name}": array for i, each in enumerate(encodings) for name, array in Encoder.empty_state(each).items()}


#: Encoders of a model without encoded columns.
NO_ENCODERS: Final = Encoders()
