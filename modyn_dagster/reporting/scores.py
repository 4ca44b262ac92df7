"""Scores of composite models over the intervals of one run: from cells of the evaluation matrix to two series."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.catalog.database.mapping import as_datetime64
from modyn_dagster.catalog.results.evaluations import EvaluationRow
from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.evaluation import Score, anchor_of, currently_active, currently_trained, pipeline_score
from modyn_dagster.spec.intervals import IntervalBlock

Interval = tuple[datetime, datetime]

NO_ACTIVE_MODEL = "no model is active yet"
NOT_EVALUATED = "not evaluated yet"


@dataclass(frozen=True, slots=True)
class IntervalScore:
    """What a composite model scored on ``[start, end)``.

    ``value`` is None when there is no score, and ``reason`` then says why. ``trigger`` is the ordinal of the trigger whose
    model stands for the composite there, None where there is none. ``n_samples`` is None before anything was evaluated.
    ``low`` and ``high`` are the ends of the confidence interval, where there is one.
    """

    start: datetime
    end: datetime
    value: float | None
    reason: str | None
    n_samples: int | None
    trigger: int | None
    seen_in_training: bool
    low: float | None = None
    high: float | None = None

    @property
    def interval(self) -> Interval:
        """Start and end, the identity of the interval."""
        return self.start, self.end

    def to_json(self) -> dict[str, Any]:
        """Plain values; times in ISO 8601."""
        return {
            "start": self.start.astimezone(UTC).isoformat(),
            "end": self.end.astimezone(UTC).isoformat(),
            "value": self.value,
            "reason": self.reason,
            "n_samples": self.n_samples,
            "trigger": self.trigger,
            "seen_in_training": self.seen_in_training,
            "low": self.low,
            "high": self.high,
        }


@dataclass(frozen=True, slots=True)
class CompositeSeries:
    """The two series of a run, one entry per interval in order of time."""

    active: tuple[IntervalScore, ...]
    trained: tuple[IntervalScore, ...]


def composite_series(
    models: Sequence[ModelRow], cells: Sequence[EvaluationRow], metric: str, intervals: IntervalBlock | None = None
) -> CompositeSeries:
    """Currently active and currently trained scores of one run.

    ``models`` are in trigger order. The intervals are those that have a cell of ``metric``; their anchors are those of the
    block ``intervals`` that made them, by default the starts.
    """
    matrix = _Matrix(models, [cell for cell in cells if cell.metric == metric])
    ends = _datetime64([model.train_end for model in models])
    spans = [(as_datetime64(start), as_datetime64(end)) for start, end in matrix.intervals]
    anchors = np.array([s if intervals is None else anchor_of(intervals, s, e) for s, e in spans], dtype="datetime64[us]")
    return CompositeSeries(
        active=matrix.read(currently_active(ends, anchors)),
        trained=matrix.read(currently_trained(ends, anchors)),
    )


def mean_score(active: Sequence[IntervalScore], among: Collection[Interval] | None = None) -> Score:
    """Pipeline score: unweighted mean of the currently active series, or of those intervals of it that are in ``among``."""
    values = np.array([np.nan if score.value is None else score.value for score in active], dtype=np.float64)
    chosen = np.array([-1 if score.trigger is None else score.trigger for score in active], dtype=np.int64)
    mask = None if among is None else np.array([score.interval in among for score in active], dtype=np.bool_)
    return pipeline_score(values, chosen, among=mask)


class _Matrix:
    """Cells of one metric by model and interval."""

    def __init__(self, models: Sequence[ModelRow], cells: Sequence[EvaluationRow]) -> None:
        self.intervals: list[Interval] = sorted({(cell.interval_start, cell.interval_end) for cell in cells})
        self._ordinals = [model.ordinal for model in models]
        self._cells = {(cell.ordinal, (cell.interval_start, cell.interval_end)): cell for cell in cells}
        # Cells come in trigger order: the newest model's count is the one that knows late samples.
        self._n_samples = {(cell.interval_start, cell.interval_end): cell.n_samples for cell in cells}

    def read(self, chosen: npt.NDArray[np.int64]) -> tuple[IntervalScore, ...]:
        """The cell of the chosen model (index, or -1) in each interval."""
        return tuple(self._score(interval, int(index)) for interval, index in zip(self.intervals, chosen, strict=True))

    def _score(self, interval: Interval, index: int) -> IntervalScore:
        if index < 0:
            return IntervalScore(*interval, None, NO_ACTIVE_MODEL, self._n_samples[interval], None, False)
        ordinal = self._ordinals[index]
        cell = self._cells.get((ordinal, interval))
        if cell is None:
            return IntervalScore(*interval, None, NOT_EVALUATED, self._n_samples[interval], ordinal, False)
        found = IntervalScore(*interval, cell.value, cell.undefined, cell.n_samples, ordinal, cell.seen_in_training)
        return replace(found, low=cell.low, high=cell.high)


def _datetime64(moments: Sequence[datetime]) -> npt.NDArray[np.datetime64]:
    return np.array([as_datetime64(moment) for moment in moments], dtype="datetime64[us]")
