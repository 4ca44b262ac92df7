"""Summaries of pipeline runs: triggers, cost, composite scores."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.predictions import TakenOver, taken_over
from modyn_dagster.catalog.results.promotions import PromotionCounts, promotion_counts, served_moments
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.timings import bytes_by_trigger, seconds_by_stage
from modyn_dagster.catalog.triggers import UNFINISHED, list_triggers
from modyn_dagster.reporting.scores import IntervalScore, composite_series, mean_score, spec_of
from modyn_dagster.spec.tasks.metrics import name_of_estimate


@dataclass(frozen=True, slots=True)
class TriggerCounts:
    """Number of triggers of a run by state; unfinished ones wait or are in training."""

    trained: int
    skipped: int
    failed: int
    unfinished: int


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A trained model: ordinal of its trigger, last sample time of its training set, and number of samples."""

    trigger: int
    train_end: datetime
    n_samples: int


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Numbers of one run.

    Attributes:
        pipeline, run_id, mode, name, seed, state: of the run.
        triggers: by state.
        samples_trained_on: over all models.
        seconds: wall seconds by stage, over all attempts.
        metric: of the scores.
        models: in trigger order.
        active: scores of the currently active model, one per interval.
        trained: scores of the currently trained model, one per interval.
        n_bytes: written to disk; None if the ledger has no bytes.
        estimated: estimates without labels of the scores in ``active``, where the pipeline makes them.
        served: scores of the champion of the time, one per interval; empty where the pipeline promotes nothing.
        own: scores of the composite model of the user's, one per interval; empty without one.
        composite: its name.
        pretrained_until: time up to which the pretrained model may have seen the data; None for none.
        promotions: tests and their ends; None where the pipeline promotes nothing.
        label_delay: simulated delay of labels in words; None for none.
        taken_over: predictions that equal models of other runs had made; no part of ``seconds`` and ``n_bytes``.
    """

    pipeline: str
    run_id: int
    mode: str
    name: str
    seed: int
    state: str
    triggers: TriggerCounts
    samples_trained_on: int
    seconds: Mapping[str, float]
    metric: str
    models: tuple[TrainedModel, ...]
    active: tuple[IntervalScore, ...]
    trained: tuple[IntervalScore, ...]
    n_bytes: int | None = None
    taken_over: TakenOver = TakenOver()  # noqa: RUF009 - frozen
    estimated: tuple[IntervalScore, ...] = ()
    label_delay: str | None = None
    served: tuple[IntervalScore, ...] = ()
    promotions: PromotionCounts | None = None
    own: tuple[IntervalScore, ...] = ()
    composite: str | None = None
    pretrained_until: datetime | None = None

    @property
    def total_seconds(self) -> float:
        """Wall seconds of all stages."""
        return sum(self.seconds.values())

    @property
    def mean_active(self) -> float | None:
        """Pipeline score: unweighted mean over the intervals where a model is active and the metric is defined."""
        return mean_score(self.active).value

    @property
    def mean_served(self) -> float | None:
        """Mean score of the champion of the time over the intervals where a model is active and it has a score."""
        return self._mean_where_active(self.served)

    @property
    def mean_own(self) -> float | None:
        """Mean score of the user's composite model over the intervals where a model is active and it has a score."""
        return self._mean_where_active(self.own)

    @property
    def n_scored(self) -> int:
        """Number of intervals in ``mean_active``."""
        return mean_score(self.active).n

    def to_json(self) -> dict[str, Any]:
        """JSON values; times in ISO 8601."""
        return {
            "pipeline": self.pipeline,
            "run": self.run_id,
            "mode": self.mode,
            "name": self.name,
            "seed": self.seed,
            "state": self.state,
            "label_delay": self.label_delay,
            "triggers": {name: getattr(self.triggers, name) for name in TriggerCounts.__slots__},
            "samples_trained_on": self.samples_trained_on,
            "seconds": dict(self.seconds),
            "total_seconds": self.total_seconds,
            "bytes": self.n_bytes,
            "taken_over": asdict(self.taken_over),
            "metric": self.metric,
            "mean_active_score": self.mean_active,
            "scored_intervals": self.n_scored,
            "active": [score.to_json() for score in self.active],
            "trained": [score.to_json() for score in self.trained],
            **self._promotions(),
            **self._composite(),
            **({} if self.pretrained_until is None else {"pretrained_until": self.pretrained_until.isoformat()}),
            "estimated": [score.to_json() for score in self.estimated],
        }

    def _promotions(self) -> dict[str, Any]:
        """Fields of a pipeline that promotes models."""
        if self.promotions is None:
            return {}
        served = [score.to_json() for score in self.served]
        return {"promotions": asdict(self.promotions), "mean_served_score": self.mean_served, "served": served}

    def _composite(self) -> dict[str, Any]:
        """Fields of a pipeline with a composite model of the user's."""
        if self.composite is None:
            return {}
        return {"composite": self.composite, "mean_own_score": self.mean_own, "own": [score.to_json() for score in self.own]}

    def _mean_where_active(self, scores: Sequence[IntervalScore]) -> float | None:
        return mean_score(scores, among={score.interval for score in self.active if score.trigger is not None}).value


def summarise_run(conn: sa.Connection, run: RunRow, metric: str | None = None) -> RunSummary:
    """Read a run from the catalog; the default metric is the score of its spec."""
    spec = spec_of(run)
    chosen = metric or spec.evaluation.score_metric
    models = list_models(conn, run.id)
    cells = list_evaluations(conn, run.id)
    served = () if spec.promotion is None else served_moments(conn, run.id)
    until = spec.training.possibly_seen_until
    scores = composite_series(models, cells, chosen, spec.evaluation, served, until)
    estimates = composite_series(models, cells, name_of_estimate(chosen), spec.evaluation)
    written = bytes_by_trigger(conn, run.id)
    states = Counter(trigger.state for trigger in list_triggers(conn, run.id))
    return RunSummary(
        pipeline=run.pipeline,
        run_id=run.id,
        mode=run.mode,
        name=run.name,
        seed=run.seed,
        state=run.state,
        label_delay=None if spec.label_delay is None else spec.label_delay.words(),
        triggers=TriggerCounts(
            trained=states["trained"],
            skipped=states["skipped"],
            failed=states["failed"],
            unfinished=sum(states[state] for state in UNFINISHED),
        ),
        samples_trained_on=sum(model.n_samples for model in models),
        seconds=seconds_by_stage(conn, run.id),
        metric=chosen,
        models=tuple(TrainedModel(model.ordinal, model.train_end, model.n_samples) for model in models),
        active=scores.active,
        trained=scores.trained,
        n_bytes=sum(written.values()) if written else None,
        taken_over=taken_over(conn, run.id),
        estimated=estimates.active,
        served=scores.served,
        promotions=None if spec.promotion is None else promotion_counts(conn, run.id),
        own=scores.own,
        composite=None if spec.evaluation.composite is None else spec.evaluation.composite.name,
        pretrained_until=until,
    )
