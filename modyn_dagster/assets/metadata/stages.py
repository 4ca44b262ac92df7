"""Dagster events of a stage: materialization, metadata and check results of a trigger's training set, model or evaluation."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from modyn_dagster.assets.checks import check_evaluations
from modyn_dagster.assets.metadata.batches import time_text
from modyn_dagster.assets.metadata.decisions import decision_details, trigger_picture
from modyn_dagster.assets.metadata.entries import REASON, decision_entries, details, in_order, rounded, times_entries
from modyn_dagster.assets.metadata.evaluations import evaluation_metadata
from modyn_dagster.assets.metadata.models import model_details, model_metadata, samples_by_batch, stored_metadata
from modyn_dagster.assets.specs import PipelineAssets
from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.catalog.results.training_sets import TrainingSetRow, list_fills
from modyn_dagster.catalog.timings import seconds_by_stage
from modyn_dagster.pipeline.stages.training_set.own_selection import OWN
from modyn_dagster.resources.event_store import AssetEvent
from modyn_dagster.spec.online import RTBSSpec

if TYPE_CHECKING:
    from modyn_dagster.pipeline.context import TriggerContext
    from modyn_dagster.pipeline.stages.trigger_stages import StageResult


def selection_metadata(context: TriggerContext, row: TrainingSetRow) -> dict[str, Any]:
    """Metadata of a training set by its strategy: the backend, the user's code, a sample of the stream, comparisons."""
    metadata: dict[str, Any] = {"backend": context.spec.selection.backend}
    metadata |= {name: row.details[name] for name in ("n_compared", "n_uniform") if name in row.details}
    if (own := row.details.get(OWN)) is not None:
        metadata["chosen_by"] = own["path"]
        metadata["certified"] = "yes" if own["certified"] else "no: the strategy tells no inclusion probabilities"
    if "state" in row.details:
        metadata["strategy"] = row.details["state"]["strategy"]["kind"]
    if "skipped" in row.details:
        metadata["skipped"] = row.details["skipped"]
    if "fill" in row.details:
        metadata["fill"] = rounded(float(row.details["fill"]))
        metadata["fill_chart"] = dg.MetadataValue.md(_fill_plot(context, row))
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
    from modyn_dagster.reporting.mlflow.registry.registered_models import registered_name

    context, trigger = result.context, result.context.trigger
    last: dict[str, Any] = {"run": context.run.title, "trigger": trigger.ordinal, "trigger_key": trigger.key}
    match result.row:
        case TrainingSetRow() as row:
            metadata = decision_entries(trigger.score, trigger.threshold, trigger.reason)
            metadata |= trigger_picture(context.platform, trigger) | _training_set(row) | selection_metadata(context, row)
            last |= _training_set_details(row) | decision_details(context.platform, trigger)
        case ModelRow() as row:
            metadata = {REASON: trigger.reason} | model_metadata(row) | stored_metadata(context, row, key)
            metadata |= samples_by_batch(context)
            last |= model_details(row)
        case cells:
            metadata = {REASON: trigger.reason} | evaluation_metadata(context, cells, composite)
    metadata["Trigger"] = _title(context)
    seconds = _seconds(context)
    metadata |= times_entries({stage: value for stage, value in seconds.items() if stage in _STAGES[result.stage]})
    if mlflow_url is not None:
        metadata["mlflow"] = dg.MetadataValue.url(mlflow_url)
        if isinstance(result.row, ModelRow):
            # One page for all versions: which was live when, which one is the champion.
            page = f"{mlflow_url.partition('/#/')[0]}/#/models/{registered_name(result.context.run)}"
            metadata["mlflow_versions"] = dg.MetadataValue.url(page)
    return in_order(metadata) | details(last | {"seconds": seconds})


def _title(context: TriggerContext) -> str:
    """Run and number of a trigger, and the time of the newest sample that it trains on: its partition's key has no date."""
    times = [context.training_set.time_max if context.training_set else None, context.model.train_end if context.model else None]
    newest = next((time for time in times if time is not None), None)
    return f"{context.run.title}, no. {context.trigger.ordinal}, {time_text(newest)}"


def _training_set(row: TrainingSetRow) -> dict[str, Any]:
    return {
        "dagster/row_count": row.n_samples,
        "samples": row.n_samples,
        "window_samples": row.n_pool,
        **({"unlabelled_samples": row.details["n_unlabelled"]} if "n_unlabelled" in row.details else {}),
        "first_time": time_text(row.time_min),
        "last_time": time_text(row.time_max),
    }


def _training_set_details(row: TrainingSetRow) -> dict[str, Any]:
    state, since = row.details.get("state", {}), row.details.get("labelled_since")
    labels = "" if since is None else f", with labels that came after key {since['key']}"
    return {
        "window": f"keys after {row.after} up to {row.until}{labels}",
        "checksum": row.checksum,
        "file": row.path,
        "strategy": dict(state["strategy"]) if state else None,
        "code": row.details.get(OWN, {}).get("code"),
        "state_checksum": state.get("checksum"),
    }


def _seconds(context: TriggerContext) -> Mapping[str, float]:
    with context.platform.transaction() as conn:
        return seconds_by_stage(conn, context.run.id, context.trigger.id)


#: Stages whose time an asset shows; the ledger's others are those of measuring and deciding, before the trigger.
_STAGES: Final[Mapping[str, Collection[str]]] = {
    "training_set": ("select",),
    "model": ("train", "save"),
    "evaluation": ("evaluate",),
}

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
