"""Jobs: what the sensors launch, and ``retention``."""

from typing import Any

import dagster as dg

from modyn_dagster.assets.specs import PipelineAssets
from modyn_dagster.resources.platform import PlatformResource
from modyn_dagster.spec.base import seconds_of

#: What ``dagster.define_asset_job`` returns; Dagster does not export its class.
AssetJob = Any


def train_job(assets: PipelineAssets) -> AssetJob:
    """One trigger, from selection to evaluation, in one process: torch is imported once."""
    selection = dg.AssetSelection.assets(*(assets.key(asset) for asset in ("training_set", "model", "evaluation")))
    return dg.define_asset_job(
        f"train__{assets.name}",
        selection,
        description=f"Select, train and evaluate one trigger of {assets.name}.",
        executor_def=dg.in_process_executor,
        tags=_ended_in_time(assets),
    )


def evaluate_job(assets: PipelineAssets) -> AssetJob:
    """Judge models of a pipeline on what has arrived since."""
    return dg.define_asset_job(
        f"evaluate__{assets.name}",
        dg.AssetSelection.assets(assets.key("evaluation")),
        description=f"Judge models of {assets.name} on data that arrived after they were trained.",
        executor_def=dg.in_process_executor,
        tags=_ended_in_time(assets),
    )


def measure_job(assets: PipelineAssets) -> AssetJob:
    """Measure what the triggering policy of a pipeline needs next."""
    return dg.define_asset_job(
        f"measure__{assets.name}",
        dg.AssetSelection.assets(assets.key("measurement")),
        description=f"Measure what the triggering policy of {assets.name} needs to decide.",
        executor_def=dg.in_process_executor,
        tags=_ended_in_time(assets),
    )


def _ended_in_time(assets: PipelineAssets) -> dict[str, str]:
    """Dagster's run monitoring ends a run that takes longer, and the sensor asks for the next attempt."""
    return {"dagster/max_runtime": str(seconds_of(assets.pipeline.max_run_time))}


@dg.op(description="Remove the files that no `retention` of a pipeline keeps.")
def apply_retention(context: dg.OpExecutionContext, modyn: PlatformResource) -> None:
    """Remove files beyond what the pipelines keep, and checkpoints that nothing will go on from; rows stay."""
    from modyn_dagster.pipeline.retention import apply_retention as apply

    removed = apply(modyn.platform())
    context.log.info(f"removed {removed.training_sets} training sets and {removed.predictions} prediction files")
    context.add_output_metadata(
        {
            "training_sets": removed.training_sets,
            "predictions": removed.predictions,
            "optimizers": removed.optimizers,
            "checkpoints": removed.checkpoints,
            "bytes": removed.n_bytes,
        }
    )


@dg.job(description="Apply every pipeline's `retention`.", executor_def=dg.in_process_executor)
def retention() -> None:
    """Launch it by hand, or put it on a schedule of your own."""
    apply_retention()
