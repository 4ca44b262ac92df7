"""Context of a trigger: its catalog rows, read once when an attempt is claimed, and handed from stage to stage."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from time import perf_counter
from typing import Self

import sqlalchemy as sa

from modyn_dagster.catalog.results.models import ModelRow, list_models, newest_model
from modyn_dagster.catalog.results.promotions import served_moments
from modyn_dagster.catalog.results.training_sets import TrainingSetRow, find_training_set
from modyn_dagster.catalog.runs import RunRow, get_run
from modyn_dagster.catalog.timings import Stage, Timing
from modyn_dagster.catalog.triggers import TriggerRow, find_trigger, list_triggers
from modyn_dagster.data.view import DatasetView
from modyn_dagster.distributed.protocols import Pool
from modyn_dagster.errors import UnknownName
from modyn_dagster.keys import ordinal_of
from modyn_dagster.pipeline.platform import Platform, worker_platform
from modyn_dagster.settings import Settings
from modyn_dagster.spec.pipeline import PipelineSpec


@dataclass(frozen=True)
class TriggerContext:
    """A trigger and the catalog rows that its stages start from, as they were when its attempt was claimed.

    Models and triggers of a run change only by the commit of its one unfinished trigger, so the rows hold until then.

    Attributes:
        platform: project, database and files.
        spec: spec of the run.
        view: the dataset up to the trigger's point.
        run: the run. Its cursor, epoch and policy state may be outdated; every commit reads them again.
        trigger: the trigger with the claimed attempt. Work on a trained trigger is a check.
        triggers: triggers of the run, in order.
        models: models of the run, in order, the trigger's own among them once it is trained.
        previous: the model that training starts from; None where it starts afresh.
        training_set: None before it is selected.
        served: stream times at which models became the champion, with the ordinals of their triggers; empty without a gate.
        pool: workers that the process may deal calls to; None for none. Results never depend on it.
        newest_labels: position in the sequence of arrivals up to which labels of evaluation samples count, so that all models
            of an evaluation see the same ones; None for those that are there.
    """

    platform: Platform
    spec: PipelineSpec
    view: DatasetView
    run: RunRow
    trigger: TriggerRow
    triggers: Sequence[TriggerRow]
    models: Sequence[ModelRow]
    previous: ModelRow | None
    training_set: TrainingSetRow | None
    pool: Pool | None = None
    newest_labels: int | None = None
    served: Sequence[tuple[datetime, int]] = ()

    @property
    def model(self) -> ModelRow | None:
        """The trigger's own model; None before it is trained."""
        return next((model for model in self.models if model.trigger_id == self.trigger.id), None)

    @property
    def earlier_models(self) -> list[ModelRow]:
        """Models of the run's earlier triggers, in order."""
        return [model for model in self.models if model.ordinal < self.trigger.ordinal]

    @property
    def earlier_triggers(self) -> list[TriggerRow]:
        """Earlier triggers of the run, in order."""
        return [trigger for trigger in self.triggers if trigger.ordinal < self.trigger.ordinal]

    @property
    def base_hash(self) -> str | None:
        """The newest model that the run trained before this trigger, or took over at its start."""
        earlier = self.earlier_models
        return earlier[-1].hash if earlier else self.run.previous_model

    def with_model(self, run: RunRow, trigger: TriggerRow, model: ModelRow) -> Self:
        """Return the context after the commit of the trigger's model."""
        return replace(self, run=run, trigger=trigger, models=(*self.models, model))


def load_context(
    conn: sa.Connection,
    platform: Platform,
    run: RunRow,
    trigger: TriggerRow,
    view: DatasetView | None = None,
    *,
    has_previous: bool = True,
) -> TriggerContext:
    """Read the context of a trigger of a run; the default view reaches up to the trigger's point.

    Without ``has_previous`` the model that training starts from is left to the caller.
    """
    spec, models = platform.spec_of(run), list_models(conn, run.id)
    if view is None:
        view = platform.read_view_of(conn, run, until=ordinal_of(trigger.point))
    previous = _previous_model(conn, spec, run, trigger, models) if has_previous else None
    rows = (list_triggers(conn, run.id), models, previous, find_training_set(conn, trigger.id))
    return TriggerContext(platform, spec, view, run, trigger, *rows, served=_served(conn, spec, run))


def _served(conn: sa.Connection, spec: PipelineSpec, run: RunRow) -> Sequence[tuple[datetime, int]]:
    return () if spec.promotion is None else served_moments(conn, run.id)


def _previous_model(
    conn: sa.Connection, spec: PipelineSpec, run: RunRow, trigger: TriggerRow, models: Sequence[ModelRow]
) -> ModelRow | None:
    if not spec.training.use_previous_model:
        return None
    own = next((model for model in models if model.trigger_id == trigger.id), None)
    model_hash = run.start_of(spec.training.use_previous_model) if own is None else own.previous_hash
    if model_hash is None:
        return None
    model = newest_model(conn, run.id, model_hash)
    if model is None:
        raise UnknownName("model", model_hash)
    return model


def context_of(platform: Platform, pipeline: str, partition_key: str, view: DatasetView | None = None) -> TriggerContext:
    """Return the context of a trigger partition; ``UnknownName`` when no decision made it."""
    with platform.transaction() as conn:
        trigger = find_trigger(conn, pipeline, partition_key)
        return load_context(conn, platform, get_run(conn, trigger.run_id), trigger, view)


def trained_contexts(platform: Platform, run: RunRow, view: DatasetView) -> list[TriggerContext]:
    """Return the contexts of the trained triggers of a run, for evaluation: without previous models and training sets."""
    spec = platform.spec_of(run)
    with platform.transaction() as conn:
        triggers, models = list_triggers(conn, run.id), list_models(conn, run.id)
        served = _served(conn, spec, run)
    trained = [trigger for trigger in triggers if trigger.state == "trained"]
    rows = (triggers, models, None, None)
    return [TriggerContext(platform, spec, view, run, trigger, *rows, served=served) for trigger in trained]


def context_in_worker(settings: Settings, run_id: int, trigger_id: int, until: int) -> TriggerContext:
    """Read the context of a trained trigger in a worker's process, with the dataset up to the batch of an ordinal."""
    platform = worker_platform(settings)
    with platform.transaction() as conn:
        run = get_run(conn, run_id)
    view = platform.view_of(run, until=until)
    return next(each for each in trained_contexts(platform, run, view) if each.trigger.id == trigger_id)


class Stopwatch:
    """Seconds of a stage for the cost ledger."""

    def __init__(self, stage: Stage) -> None:
        self._stage: Stage = stage
        self._begin = perf_counter()

    @property
    def seconds(self) -> float:
        """Wall seconds since the start."""
        return perf_counter() - self._begin

    def read(self, n_samples: int | None = None, n_bytes: int | None = None) -> Timing:
        """Timing of this stage, as a row for the cost ledger."""
        return Timing(self._stage, self.seconds, n_samples, n_bytes=n_bytes)
