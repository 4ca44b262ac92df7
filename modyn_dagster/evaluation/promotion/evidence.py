"""Evidence that a gate judges at one batch, as it asks for it: pairs of predictions, scores, sizes and seconds of models."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from modyn_dagster.evaluation.metrics.evaluation_samples import Outputs, Truth
from modyn_dagster.keys import KeyArray


@dataclass(frozen=True, slots=True)
class Pairs:
    """Predictions of two models for the same samples, with the labels with which these entered the test.

    Attributes:
        truth: classes ``int64[n]`` from 0 on, or targets ``float64[n]``.
        candidate, incumbent: outputs ``float32[n, k]``; the models may know different numbers of classes.
        slices: values of each slice of the guardrails, ``object[n]``; None for a sample without one.
    """

    truth: Truth
    candidate: Outputs
    incumbent: Outputs
    slices: Mapping[str, np.ndarray[tuple[int], np.dtype[np.object_]]]

    def __len__(self) -> int:
        return len(self.truth)


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Predictions of one model for the samples of an interval that it has not seen, in stream order.

    Attributes:
        keys: of the samples, ``uint64[n]``, ascending.
        truth: classes ``int64[n]`` or targets ``float64[n]``; -1 or NaN where no label is known.
        outputs: ``float32[n, k]``.
        slices: as of ``Pairs``, where a rollback watches slices.
    """

    keys: KeyArray
    truth: Truth
    outputs: Outputs
    slices: Mapping[str, np.ndarray[tuple[int], np.dtype[np.object_]]]


class Evidence(Protocol):
    """Knowledge after a batch, with the labels that had arrived by then."""

    @property
    def batch(self) -> int:
        """Ordinal of the batch."""
        ...

    @property
    def last_key(self) -> int:
        """Last key of the stream up to the batch."""
        ...

    @property
    def time(self) -> int | None:
        """Stream time reached, microseconds since 1970; None where no sample has a time."""
        ...

    def models(self) -> Mapping[int, int]:
        """Key of the trigger, by its ordinal, of every model whose trigger the stream has passed."""
        ...

    def pairs(self, candidate: int, incumbent: int, after: int, begun: int, since: int) -> Pairs:
        """Pairs that entered a test after one batch and up to this one, in the order in which they entered.

        A sample enters once it has a label and is mature, with the label that it has then.

        Args:
            candidate, incumbent: ordinals of triggers.
            after: only samples with a larger key.
            begun: ordinal of the batch after which the test began.
            since: ordinal of the batch after which the pairs entered.
        """
        ...

    def coverage(self, candidate: int, after: int) -> float:
        """Share of the mature samples after a key that have a label; 1 where there are none."""
        ...

    def outcomes(self, model: int, begin: int, end: int) -> Outcomes | None:
        """Predictions of a model on the samples of an interval of stream time that it has not seen; None while it is open."""
        ...

    def n_bytes(self, model: int) -> int:
        """Bytes of a model's weights in memory."""
        ...

    def latency(self, model: int) -> float | None:
        """Median of the measured seconds per 1,000 predicted samples; None where none were measured."""
        ...

    def load_problem(self, model: int) -> str | None:
        """Sentence that says why a model cannot be loaded and verified; None where it can."""
        ...
