"""From what a stage left behind to Dagster's events."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg

from modyn_dagster.assets.checks import check_evaluations
from modyn_dagster.assets.specs import PipelineAssets

if TYPE_CHECKING:
    from modyn_dagster.pipeline.stages import StageResult

StageEvent = dg.AssetMaterialization | dg.AssetCheckEvaluation
OpEvent = dg.MaterializeResult[None] | dg.AssetCheckEvaluation | dg.Output[None]


def stage_events(assets: PipelineAssets, result: "StageResult", mlflow_url: str | None) -> Iterator[StageEvent]:
    """A materialization of the stage's asset for its trigger, and how the checks went; whatever op it happens in."""
    from modyn_dagster.assets.metadata_triggers import stage_metadata

    key = assets.key(result.stage)
    metadata = stage_metadata(result, key, mlflow_url)
    yield dg.AssetMaterialization(key, partition=result.partition_key, metadata=metadata)
    yield from check_evaluations(key, result.partition_key, result.checks)


def stage_result(assets: PipelineAssets, result: "StageResult", mlflow_url: str | None) -> Iterator[OpEvent]:
    """The same from the asset's own op, so that what is downstream in the same run may start."""
    from modyn_dagster.assets.metadata_triggers import stage_metadata

    key = assets.key(result.stage)
    yield dg.MaterializeResult(asset_key=key, metadata=stage_metadata(result, key, mlflow_url))
    yield from check_evaluations(key, result.partition_key, result.checks)
