"""What came out of one pipeline run: triggers, cost and composite scores, read from the catalog."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from modyn_dagster.catalog.evaluations import list_evaluations
from modyn_dagster.catalog.models import list_models
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.timings import bytes_by_trigger, seconds_by_stage
from modyn_dagster.catalog.triggers import UNFINISHED, list_triggers
from modyn_dagster.reporting.scores import IntervalScore, composite_series, mean_score
from modyn_dagster.spec.load import parse_spec
from modyn_dagster.spec.pipeline import PipelineSpec


@dataclass(frozen=True, slots=True)
class TriggerCounts:
    """Triggers of a run by how they ended; ``unfinished`` ones wait or are being trained."""

    trained: int
    skipped: int
    failed: int
    unfinished: int


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """When a model came to be: its trigger's ordinal, the last sample time it was trained on, and samples."""

    trigger: int
    train_end: datetime
    n_samples: int


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run in numbers.

    ``seconds`` are wall seconds by stage over all attempts. ``active`` and ``trained`` are the scores of the currently
    active and the currently trained composite model, one per interval; ``metric`` is what they measure. ``n_bytes`` were
    written to disk; None where the ledger does not say.
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

    @property
    def total_seconds(self) -> float:
        """Wall seconds of all stages."""
        return sum(self.seconds.values())

    @property
    def mean_active(self) -> float | None:
        """Pipeline score: unweighted mean over the intervals where a model is active and the metric is defined."""
        return mean_score(self.active).value

    @property
    def n_scored(self) -> int:
        """Intervals that ``mean_active`` is over."""
        return mean_score(self.active).n

    def to_json(self) -> dict[str, Any]:
        """Plain values; times in ISO 8601."""
        return {
            "pipeline": self.pipeline,
            "run": self.run_id,
            "mode": self.mode,
            "name": self.name,
            "seed": self.seed,
            "state": self.state,
            "triggers": {name: getattr(self.triggers, name) for name in TriggerCounts.__slots__},
            "samples_trained_on": self.samples_trained_on,
            "seconds": dict(self.seconds),
            "total_seconds": self.total_seconds,
            "bytes": self.n_bytes,
            "metric": self.metric,
            "mean_active_score": self.mean_active,
            "scored_intervals": self.n_scored,
            "active": [score.to_json() for score in self.active],
            "trained": [score.to_json() for score in self.trained],
        }


def summarise_run(conn: sa.Connection, run: RunRow, metric: str | None = None) -> RunSummary:
    """Read a run from the catalog; ``metric`` replaces the one its spec calls the score."""
    spec = parse_spec(run.spec, PipelineSpec, source=run.title)
    chosen = metric or spec.evaluation.score_metric
    models = list_models(conn, run.id)
    scores = composite_series(models, list_evaluations(conn, run.id), chosen, spec.evaluation.intervals)
    written = bytes_by_trigger(conn, run.id)
    states = Counter(trigger.state for trigger in list_triggers(conn, run.id))
    return RunSummary(
        pipeline=run.pipeline,
        run_id=run.id,
        mode=run.mode,
        name=run.name,
        seed=run.seed,
        state=run.state,
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
    )
