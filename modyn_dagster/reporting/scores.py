"""Scores of the composite models of a run, interval by interval, from the cells of its evaluation matrix."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from modyn_dagster.catalog.database.mapping import as_datetime64
from modyn_dagster.catalog.results.evaluations import EvaluationRow
from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.evaluation import Score, anchor_of, currently_active, currently_served, currently_trained, pipeline_score
from modyn_dagster.evaluation.composite.custom import currently_chosen
from modyn_dagster.spec.evaluation import EvaluationSpec
from modyn_dagster.spec.load import parse_spec
from modyn_dagster.spec.pipeline import PipelineSpec

Interval = tuple[datetime, datetime]

NO_ACTIVE_MODEL = "no model is active yet"
NO_CHOSEN_MODEL = "no model is chosen"
NOT_EVALUATED = "not evaluated yet"


@dataclass(frozen=True, slots=True)
class LateScore:
    """Final score of an interval whose labels arrive later than its samples, beside its score as known.

    Attributes:
        coverage: share of the samples whose label was known when the score became known.
        final: score with all labels that have arrived; None without one.
        final_coverage: share of the samples with a label by now.
    """

    coverage: float
    final: float | None
    final_coverage: float

    @classmethod
    def of(cls, cell: EvaluationRow) -> Self | None:
        """Final score of a cell; None where labels arrive with their samples."""
        if cell.n_labelled is None:
            return None
        n = max(1, cell.n_samples)
        return cls(cell.n_labelled / n, cell.final_value, (cell.final_labelled or 0) / n)

    def __str__(self) -> str:
        final = "no final score" if self.final is None else f"final {self.final:.4f}"
        return f"{self.coverage:.0%} labelled; {final}, {self.final_coverage:.0%}"


@dataclass(frozen=True, slots=True)
class IntervalScore:
    """Score of a composite model on ``[start, end)``.

    Attributes:
        start: first moment of the interval.
        end: first moment after it.
        value: None without a score.
        reason: why there is no score.
        n_samples: samples of the interval; None before anything was evaluated.
        trigger: ordinal of the trigger whose model stands for the composite; None if there is none.
        seen_in_training: the model was trained on samples of the interval.
        low: lower end of the confidence interval, if there is one.
        high: its upper end.
        possibly_seen: the interval begins before the time up to which the pretrained model may have seen the data.
        late: the score with the labels that have arrived until now, and label coverages; None where labels arrive with samples.
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
    late: LateScore | None = None
    possibly_seen: bool = False

    @property
    def interval(self) -> Interval:
        """Start and end, which identify the interval."""
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
            **({} if self.late is None else {"late": asdict(self.late)}),
            **({"possibly_seen": True} if self.possibly_seen else {}),
        }


@dataclass(frozen=True, slots=True)
class CompositeSeries:
    """Scores of the currently active and the currently trained model, one per interval in order of time.

    ``served`` are those of the champion of the time, empty where the pipeline promotes nothing, and ``own`` those of the user's
    composite model, empty without one.
    """

    active: tuple[IntervalScore, ...]
    trained: tuple[IntervalScore, ...]
    served: tuple[IntervalScore, ...] = ()
    own: tuple[IntervalScore, ...] = ()


def composite_series(
    models: Sequence[ModelRow],
    cells: Sequence[EvaluationRow],
    metric: str,
    evaluation: EvaluationSpec | None = None,
    served: Sequence[tuple[datetime, int]] = (),
    pretrained_until: datetime | None = None,
) -> CompositeSeries:
    """Currently active and currently trained scores of one run, those of the champion of the time and of the user's composite.

    Args:
        models: in trigger order.
        cells: of the run; intervals without a cell of ``metric`` are left out.
        metric: to read.
        evaluation: block of the run's spec, for anchors and the user's composite; default: anchors at the starts.
        served: stream times at which models became the champion, with the ordinals of their triggers.
        pretrained_until: time up to which a pretrained model may have seen the data.
    """
    matrix = _Matrix(models, [cell for cell in cells if cell.metric == metric], pretrained_until)
    ends = times_of(model.train_end for model in models)
    spans = [(as_datetime64(start), as_datetime64(end)) for start, end in matrix.intervals]
    moments = [s if evaluation is None else anchor_of(evaluation.intervals, s, e) for s, e in spans]
    anchors = np.array(moments, dtype="datetime64[us]")
    own = None if evaluation is None else evaluation.composite
    places = {model.ordinal: place for place, model in enumerate(models)}
    champions = [places.get(ordinal, -1) for _, ordinal in served]
    return CompositeSeries(
        active=matrix.read(currently_active(ends, anchors)),
        trained=matrix.read(currently_trained(ends, anchors)),
        served=matrix.read(currently_served(times_of(time for time, _ in served), champions, anchors)) if served else (),
        own=() if own is None else matrix.read(currently_chosen(own, ends, anchors), NO_CHOSEN_MODEL),
    )


def mean_score(active: Sequence[IntervalScore], among: Collection[Interval] | None = None) -> Score:
    """Pipeline score: unweighted mean of the currently active series, over all its intervals or those in ``among``."""
    values = np.array([np.nan if score.value is None else score.value for score in active], dtype=np.float64)
    chosen = np.array([-1 if score.trigger is None else score.trigger for score in active], dtype=np.int64)
    mask = None if among is None else np.array([score.interval in among for score in active], dtype=np.bool_)
    return pipeline_score(values, chosen, among=mask)


def with_final_values(scores: Sequence[IntervalScore]) -> list[IntervalScore]:
    """The same scores with the labels that have arrived until now; those whose labels came with their samples stay."""
    return [score if score.late is None else replace(score, value=score.late.final) for score in scores]


def final_scores(scores: Sequence[IntervalScore]) -> list[IntervalScore]:
    """Final scores of the intervals whose labels arrive later, in place of those as known; empty where there is none."""
    return with_final_values([score for score in scores if score.late is not None])


class _Matrix:
    """Cells of one metric by model and interval."""

    def __init__(
        self, models: Sequence[ModelRow], cells: Sequence[EvaluationRow], pretrained_until: datetime | None = None
    ) -> None:
        self._until = pretrained_until
        self.intervals: list[Interval] = sorted({(cell.interval_start, cell.interval_end) for cell in cells})
        self._ordinals = [model.ordinal for model in models]
        self._cells = {(cell.ordinal, (cell.interval_start, cell.interval_end)): cell for cell in cells}
        # Cells come in trigger order, and only the newest model's count includes late samples.
        self._n_samples = {(cell.interval_start, cell.interval_end): cell.n_samples for cell in cells}

    def read(self, chosen: npt.NDArray[np.int64], without: str = NO_ACTIVE_MODEL) -> tuple[IntervalScore, ...]:
        """Cell of the chosen model (index, or -1) in each interval; ``without`` is the reason where there is no model."""
        pairs = zip(self.intervals, chosen.tolist(), strict=True)
        return tuple(self._score(interval, index, without) for interval, index in pairs)

    def _score(self, interval: Interval, index: int, without: str) -> IntervalScore:
        if index < 0:
            return IntervalScore(*interval, None, without, self._n_samples[interval], None, False)
        ordinal = self._ordinals[index]
        cell = self._cells.get((ordinal, interval))
        if cell is None:
            return IntervalScore(*interval, None, NOT_EVALUATED, self._n_samples[interval], ordinal, False)
        score = IntervalScore(*interval, cell.value, cell.undefined, cell.n_samples, ordinal, cell.seen_in_training)
        possibly_seen = self._until is not None and cell.interval_start < self._until
        return replace(score, low=cell.low, high=cell.high, late=LateScore.of(cell), possibly_seen=possibly_seen)


def spec_of(run: RunRow) -> PipelineSpec:
    """Spec that a run was started with."""
    return parse_spec(run.spec, PipelineSpec, source=run.title)


def times_of(moments: Iterable[datetime]) -> npt.NDArray[np.datetime64]:
    """Moments as ``datetime64[us]``, in UTC."""
    return np.array([as_datetime64(moment) for moment in moments], dtype="datetime64[us]")
