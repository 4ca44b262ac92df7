"""What the catalog says of a run and of a trigger, read in one transaction each, for MLflow to show."""

from collections.abc import Sequence

import sqlalchemy as sa

from modyn_dagster.catalog import runs, triggers
from modyn_dagster.catalog.decisions import DecisionRow, scored_decisions
from modyn_dagster.catalog.engine import transaction
from modyn_dagster.catalog.evaluations import list_evaluations
from modyn_dagster.catalog.intervals import list_intervals
from modyn_dagster.catalog.models import ModelRow, find_model, list_models
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.timings import seconds_by_stage
from modyn_dagster.catalog.training_sets import find_training_set, list_fills
from modyn_dagster.evaluation.champion import Verdict, champions
from modyn_dagster.reporting.scores import CompositeSeries, Interval, composite_series
from modyn_dagster.reporting.summary import RunSummary, summarise_run
from modyn_dagster.reporting.tracked_content import run_content
from modyn_dagster.reporting.tracked_form import Content, DagsterRun
from modyn_dagster.reporting.tracked_trigger import TriggerRecord
from modyn_dagster.spec.load import parse_spec
from modyn_dagster.spec.measured import measures
from modyn_dagster.spec.pipeline import PipelineSpec


def read_run(engine: sa.Engine, run_id: int, dagster: DagsterRun) -> tuple[RunRow, Content, RunSummary, Sequence[Interval]]:
    """A run, what is shown of it, its summary and its intervals in order of time."""
    with transaction(engine) as conn:
        run = runs.get_run(conn, run_id)
        summary = summarise_run(conn, run)
        intervals = list_intervals(conn, run_id)
        shown = _measured_decisions(conn, run), list_fills(conn, run_id), _composites(conn, run)
        content = run_content(run, summary, intervals, dagster, *shown)
    return run, content, summary, intervals


def read_models(engine: sa.Engine, run: RunRow) -> tuple[list[ModelRow], list[Verdict]]:
    """The models of a run, and how each did against the champion of its time."""
    metric = parse_spec(run.spec, PipelineSpec, source=run.title).evaluation.score_metric
    with transaction(engine) as conn:
        models = list_models(conn, run.id)
        cells = list_evaluations(conn, run.id)
    return models, champions([model.ordinal for model in models], cells, metric)


def _composites(conn: sa.Connection, run: RunRow) -> dict[str, CompositeSeries]:
    """Of every metric the scores of the composite models."""
    evaluation = parse_spec(run.spec, PipelineSpec, source=run.title).evaluation
    models, cells = list_models(conn, run.id), list_evaluations(conn, run.id)
    return {metric: composite_series(models, cells, metric, evaluation.intervals) for metric in evaluation.metrics}


def _measured_decisions(conn: sa.Connection, run: RunRow) -> list[DecisionRow]:
    """Decisions that were taken from something measured; an amount of samples is no score worth a curve."""
    trigger = parse_spec(run.spec, PipelineSpec, source=run.title).trigger
    return scored_decisions(conn, run.id) if measures(trigger) else []


def read_trigger(engine: sa.Engine, run_id: int, trigger_id: int) -> TriggerRecord:
    """All that is shown of a trigger."""
    with transaction(engine) as conn:
        cells = list_evaluations(conn, run_id, trigger_id, subsets=True)
        return TriggerRecord(
            run=runs.get_run(conn, run_id),
            trigger=triggers.get_trigger(conn, trigger_id),
            training_set=find_training_set(conn, trigger_id),
            model=find_model(conn, trigger_id),
            cells=[cell for cell in cells if cell.subset == ""],
            intervals=list_intervals(conn, run_id),
            seconds=seconds_by_stage(conn, run_id, trigger_id),
            slices=[cell for cell in cells if cell.subset != ""],
        )
