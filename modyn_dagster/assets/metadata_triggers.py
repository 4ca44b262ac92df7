"""What a person looks at on a partition of ``<pipeline>/training_set``, ``/model`` and ``/evaluation``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from modyn_dagster.assets.metadata_decisions import decision_metadata
from modyn_dagster.assets.metadata_samples import time_text
from modyn_dagster.assets.metadata_selection import selection_metadata
from modyn_dagster.assets.metadata_slices import slices_metadata
from modyn_dagster.assets.metadata_stored import stored_metadata
from modyn_dagster.catalog.evaluations import EvaluationRow, list_evaluations
from modyn_dagster.catalog.models import ModelRow
from modyn_dagster.catalog.timings import seconds_by_stage
from modyn_dagster.catalog.training_sets import TrainingSetRow
from modyn_dagster.catalog.triggers import TriggerRow

if TYPE_CHECKING:
    from modyn_dagster.pipeline.context import TriggerContext
    from modyn_dagster.pipeline.stages import StageResult
    from modyn_dagster.reporting.summary import RunSummary


#: Metadata of an evaluation: how many intervals it has scored.
INTERVALS: Final = "intervals"


def n_intervals(cells: Sequence[EvaluationRow]) -> int:
    """How many intervals some cells are about."""
    return len({(cell.interval_start, cell.interval_end) for cell in cells})


def stage_metadata(result: StageResult, key: dg.AssetKey, mlflow_url: str | None = None) -> dict[str, Any]:
    """Numbers, tables and plots of an asset of a trigger; ``key`` is the asset's, ``mlflow_url`` the trigger's page."""
    from modyn_dagster.reporting.registered_models import registered_name

    metadata = _trigger(result.context.trigger, result.context.run.title)
    match result.row:
        case TrainingSetRow() as row:
            metadata |= _training_set(row) | selection_metadata(result.context, row)
        case ModelRow() as row:
            metadata |= _model(row) | stored_metadata(result.context, row, key)
        case cells:
            metadata |= _evaluation(result.context, cells)
    metadata |= _seconds(result.context)
    if isinstance(result.row, TrainingSetRow):
        metadata |= decision_metadata(result.context.platform, result.context.trigger)
    if mlflow_url is not None:
        metadata["mlflow"] = dg.MetadataValue.url(mlflow_url)
        if isinstance(result.row, ModelRow):
            # One page for all versions: which was live when, which one is the champion.
            page = f"{mlflow_url.partition('/#/')[0]}/#/models/{registered_name(result.context.run)}"
            metadata["mlflow_versions"] = dg.MetadataValue.url(page)
    return metadata | (_details(result.row) if isinstance(result.row, ModelRow) else {})


def _trigger(trigger: TriggerRow, run: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"run": run, "trigger": trigger.ordinal, "trigger_key": trigger.key, "reason": trigger.reason}
    if trigger.score is not None:
        metadata["score"] = trigger.score
    if trigger.threshold is not None:
        metadata["threshold"] = trigger.threshold
    return metadata


def _training_set(row: TrainingSetRow) -> dict[str, Any]:
    return {
        "dagster/row_count": row.n_samples,
        "samples": row.n_samples,
        "window_samples": row.n_pool,
        "window": f"keys after {row.after} up to {row.until}",
        "first_time": time_text(row.time_min),
        "last_time": time_text(row.time_max),
        "checksum": row.checksum,
        "file": row.path,
    }


def _model(row: ModelRow) -> dict[str, Any]:
    from modyn_dagster.reporting.figures import as_markdown
    from modyn_dagster.reporting.plots import loss_curve

    losses = [float(loss) for loss in row.losses]
    return {
        "samples": row.n_samples,
        "epochs": len(losses),
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "hash": row.hash,
        "previous_model": row.previous_hash or "none: trained from scratch",
        "trained_from": time_text(row.train_start),
        "trained_to": time_text(row.train_end),
        "loss_curve": dg.MetadataValue.md(as_markdown(loss_curve([(step, loss) for step, loss in row.curve], losses))),
    } | _epochs(row)


def _epochs(row: ModelRow) -> dict[str, Any]:
    from modyn_dagster.reporting.figures import as_markdown
    from modyn_dagster.reporting.plots import epoch_stages

    epochs = list(row.training.get("epochs", ()))
    seconds = sum(sum(epoch["seconds"].values()) for epoch in epochs)
    if not epochs or seconds == 0:
        return {}
    return {
        "steps": row.training["n_steps"],
        "samples_per_second": sum(epoch["n_samples"] for epoch in epochs) / seconds,
        "seconds_per_epoch": dg.MetadataValue.md(as_markdown(epoch_stages(epochs))),
    }


def _details(row: ModelRow) -> dict[str, Any]:
    """What takes many lines on the page, so it stands below all else."""
    surroundings = row.training.get("surroundings")
    return {
        "epoch_losses": dg.MetadataValue.json([float(loss) for loss in row.losses]),
        "architecture": dg.MetadataValue.json(dict(row.architecture)),
    } | ({"surroundings": dg.MetadataValue.json(dict(surroundings))} if surroundings else {})


def _evaluation(context: TriggerContext, cells: Sequence[EvaluationRow]) -> dict[str, Any]:
    from modyn_dagster.reporting.summary import summarise_run
    from modyn_dagster.reporting.tables import scores_table

    with context.platform.transaction() as conn:
        summary = summarise_run(conn, context.run)
        known = list_evaluations(conn, context.run.id, context.trigger.id, subsets=bool(context.spec.evaluation.slices))
    parts = [cell for cell in known if cell.subset]
    metadata: dict[str, Any] = {
        INTERVALS: n_intervals(cells),
        "scores": dg.MetadataValue.md(_cells_table(cells, context.spec.evaluation.metrics)),
        "composite_scores": dg.MetadataValue.md(scores_table(summary).markdown()),
        "score_over_time": dg.MetadataValue.md(_plot(_Drawn(summary))),
    }
    for metric in context.spec.evaluation.metrics:
        values = [cell.value for cell in cells if cell.metric == metric and cell.value is not None]
        if values:
            metadata[f"mean_{metric}"] = sum(values) / len(values)
    return metadata | slices_metadata(parts, context.spec.evaluation.metrics)


class _Drawn:
    """A summary that equals another one when their pictures do."""

    def __init__(self, summary: RunSummary) -> None:
        self.summary = summary
        self._shown = (summary.run_id, summary.metric, summary.models, summary.active, summary.trained)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Drawn) and self._shown == other._shown

    def __hash__(self) -> int:
        return hash(self._shown)


# The models of a run that has ended share their picture, and drawing takes longer than training a small model.
@lru_cache(maxsize=4)
def _plot(drawn: _Drawn) -> str:
    from modyn_dagster.reporting.figures import as_markdown
    from modyn_dagster.reporting.plots import score_over_time

    return as_markdown(score_over_time(drawn.summary))


def _cells_table(cells: Sequence[EvaluationRow], metrics: Sequence[str]) -> str:
    from modyn_dagster.reporting.tables import Table, cell_text, interval_text

    by_place = {(cell.interval_start, cell.interval_end, cell.metric): cell for cell in cells}
    intervals = {(cell.interval_start, cell.interval_end): cell for cell in cells}
    rows = [
        (
            interval_text(cell.interval_start, cell.interval_end) + (" *" if cell.seen_in_training else ""),
            f"{cell.n_samples:,}",
            *(cell_text(by_place.get((*place, metric))) for metric in metrics),
        )
        for place, cell in sorted(intervals.items())
    ]
    caption = "this model; * it saw samples of the interval in training"
    return Table(("interval", "samples", *metrics), tuple(rows), caption).markdown()


def _seconds(context: TriggerContext) -> dict[str, Any]:
    with context.platform.transaction() as conn:
        seconds = seconds_by_stage(conn, context.run.id, context.trigger.id)
    return {f"seconds_{stage}": value for stage, value in sorted(seconds.items())}
