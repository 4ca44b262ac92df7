"""Dagster events of a stage: materialization, metadata and check results of a trigger's training set, model or evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import dagster as dg

from modyn_dagster.assets.checks import check_evaluations
from modyn_dagster.assets.metadata.batches import decision_metadata, time_text
from modyn_dagster.assets.metadata.evaluations import evaluation_metadata
from modyn_dagster.assets.metadata.models import model_details, model_metadata, stored_metadata
from modyn_dagster.assets.specs import PipelineAssets
from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.catalog.results.training_sets import TrainingSetRow, list_fills
from modyn_dagster.catalog.timings import seconds_by_stage
from modyn_dagster.catalog.triggers import TriggerRow
from modyn_dagster.resources.event_store import AssetEvent
from modyn_dagster.spec.online import RTBSSpec

if TYPE_CHECKING:
    from modyn_dagster.pipeline.context import TriggerContext
    from modyn_dagster.pipeline.stages.trigger_stages import StageResult


def selection_metadata(context: TriggerContext, row: TrainingSetRow) -> dict[str, Any]:
    """Metadata of a training set from an online strategy; empty for others."""
    metadata: dict[str, Any] = {}
    if "state" in row.details:
        metadata["strategy"] = dg.MetadataValue.json(dict(row.details["state"]["strategy"]))
        metadata["state_checksum"] = row.details["state"]["checksum"]
    if "skipped" in row.details:
        metadata["skipped"] = row.details["skipped"]
    if "fill" in row.details:
        metadata["fill"] = float(row.details["fill"])
        metadata["fill_over_time"] = dg.MetadataValue.md(_fill_plot(context, row))
    return metadata


def _fill_plot(context: TriggerContext, row: TrainingSetRow) -> str:
    from modyn_dagster.reporting.plots.decisions import fill_over_time
    from modyn_dagster.reporting.plots.svg import svg_markdown

    with context.platform.transaction() as conn:
        fills = list_fills(conn, context.run.id, until=context.trigger.ordinal)
    min_fill = RTBSSpec.model_validate(row.details["state"]["strategy"]).min_fill
    title = f"{context.run.title}: is there enough fresh data to train again?"
    return svg_markdown(title, fill_over_time(fills, min_fill=min_fill, title=title))


def stage_metadata(
    result: StageResult, key: dg.AssetKey, mlflow_url: str | None = None, composite: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Numbers, tables and plots of an asset of a trigger.

    Args:
        result: of the stage.
        key: of the asset.
        mlflow_url: page of the trigger.
        composite: ``composite_metadata`` of the run; read here by default.
    """
    from modyn_dagster.reporting.mlflow.registry import registered_name

    metadata = _trigger(result.context.trigger, result.context.run.title)
    match result.row:
        case TrainingSetRow() as row:
            metadata |= _training_set(row) | selection_metadata(result.context, row)
        case ModelRow() as row:
            metadata |= model_metadata(row) | stored_metadata(result.context, row, key)
        case cells:
            metadata |= evaluation_metadata(result.context, cells, composite)
    metadata |= _seconds(result.context)
    if isinstance(result.row, TrainingSetRow):
        metadata |= decision_metadata(result.context.platform, result.context.trigger)
    if mlflow_url is not None:
        metadata["mlflow"] = dg.MetadataValue.url(mlflow_url)
        if isinstance(result.row, ModelRow):
            # One page for all versions: which was live when, which one is the champion.
            page = f"{mlflow_url.partition('/#/')[0]}/#/models/{registered_name(result.context.run)}"
            metadata["mlflow_versions"] = dg.MetadataValue.url(page)
    return metadata | (model_details(result.row) if isinstance(result.row, ModelRow) else {})


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


def _seconds(context: TriggerContext) -> dict[str, Any]:
    with context.platform.transaction() as conn:
        seconds = seconds_by_stage(conn, context.run.id, context.trigger.id)
    return {f"seconds_{stage}": value for stage, value in sorted(seconds.items())}


OpEvent = dg.MaterializeResult[None] | dg.AssetCheckEvaluation | dg.Output[None]


def stage_events(
    assets: PipelineAssets, result: StageResult, mlflow_url: str | None, composite: Mapping[str, Any] | None = None
) -> Iterator[AssetEvent]:
    """A materialization of the stage's asset for its trigger, and how the checks went; whatever op it happens in."""

    key = assets.key(result.stage)
    metadata = stage_metadata(result, key, mlflow_url, composite)
    yield dg.AssetMaterialization(key, partition=result.partition_key, metadata=metadata)
    yield from check_evaluations(key, result.partition_key, result.checks)


def stage_result(assets: PipelineAssets, result: StageResult, mlflow_url: str | None) -> Iterator[OpEvent]:
    """The same from the asset's own op, so that what is downstream in the same run may start."""

    key = assets.key(result.stage)
    yield dg.MaterializeResult(asset_key=key, metadata=stage_metadata(result, key, mlflow_url))
    yield from check_evaluations(key, result.partition_key, result.checks)
