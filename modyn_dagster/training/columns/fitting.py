"""Fit of encoders to a training set, in one pass whose order does not matter."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from modyn_dagster.errors import ConfigError
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.learning.features import HashSpec, ImputeSpec
from modyn_dagster.training.columns.encoders import NO_ENCODERS, Encoder, Encoders
from modyn_dagster.training.columns.encoding import Encoding, Rule
from modyn_dagster.training.columns.imputing import ExactMean, Median
from modyn_dagster.training.columns.rows import not_text
from modyn_dagster.training.columns.vocabulary import Counts, TooManyValues, as_bytes, vocabulary_of


class Fitting:
    """Fit of the encoders of a training set.

    Args:
        encodings: of the columns.
        rules: of the columns.
        source: name of the pipeline, for errors.
        previous: encoders of the model that training starts from, whose values keep their numbers.
    """

    def __init__(
        self, encodings: Sequence[Encoding], rules: Mapping[str, Rule], source: str, previous: Encoders = NO_ENCODERS
    ) -> None:
        self._encodings, self._rules, self._source, self._previous = encodings, rules, source, previous
        self._counts = {each.column: Counts() for each in encodings if each.has_vocabulary}
        self._statistics: dict[str, ExactMean | Median] = {}
        for column, rule in rules.items():
            if isinstance(rule, ImputeSpec) and rule.by != "constant":
                self._statistics[column] = ExactMean() if rule.by == "mean" else Median()

    @property
    def columns(self) -> list[str]:
        """Columns that have something to fit."""
        return [*self._counts, *self._statistics]

    def update(self, columns: Mapping[str, npt.NDArray[Any]], keys: KeyArray) -> None:
        """Take in columns of the samples with some keys; ``BadSample`` for a value that is no text."""
        for name, counts in self._counts.items():
            try:
                counts.update(as_bytes(columns[name]))
            except pa.ArrowException as error:
                raise not_text(columns[name], name, keys, self._source) from error
        for name, statistic in self._statistics.items():
            statistic.update(columns[name].astype(np.float64))

    def encoders(self) -> Encoders:
        """Return the fitted encoders; ``ConfigError`` names a column with more values than its bound."""
        return Encoders({each.column: self._encoder(each) for each in self._encodings})

    def _encoder(self, encoding: Encoding) -> Encoder:
        rule = self._rules[encoding.column]
        if isinstance(rule, ImputeSpec):
            fill = rule.value if rule.value is not None else self._statistics[encoding.column].value()
            return Encoder.of(encoding, fill=fill)
        if isinstance(rule, HashSpec) or not encoding.has_vocabulary:
            return Encoder.of(encoding)
        known = self._previous.by_column.get(encoding.column)
        earlier = None if known is None else known.vocabulary
        try:
            found = vocabulary_of(
                self._counts[encoding.column],
                max_values=rule.max_values,
                min_count=rule.min_count,
                refuse=rule.beyond == "refuse",
                known=earlier,
            )
        except TooManyValues as error:
            what = "has" if earlier is None else "has, with those of the previous model,"
            advice = "raise it, or say `beyond: unknown`, or `kind: hash`"
            problem = f"column {encoding.column!r} {what} {error.n} values in this training set: {advice}"
            raise ConfigError(self._source, f"training.encode.{encoding.column}.max_values", rule.max_values, problem) from error
        return Encoder.of(encoding, vocabulary=found)
