"""The asset ``<pipeline>/training_set``: selection."""

from collections.abc import Iterator

import dagster as dg

from modyn_dagster.assets.checks import check_outputs
from modyn_dagster.assets.claim import claimed
from modyn_dagster.assets.events import OpEvent, stage_result
from modyn_dagster.assets.specs import PipelineAssets
from modyn_dagster.assets.tracking import MlflowLinks
from modyn_dagster.resources.mlflow import MlflowResource
from modyn_dagster.resources.platform import PlatformResource


def training_set_asset(assets: PipelineAssets) -> dg.AssetsDefinition:
    """Select the window of a trigger. Materializing it by hand selects again and must find the same bytes."""
    samples = dg.AssetDep(assets.samples_key(), partition_mapping=dg.AllPartitionMapping())

    @dg.multi_asset(**assets.of_trigger("training_set", samples))
    def training_set(
        context: dg.AssetExecutionContext, modyn: PlatformResource, modyn_mlflow: MlflowResource
    ) -> Iterator[OpEvent]:
        from modyn_dagster.pipeline.attempts import working_attempt
        from modyn_dagster.pipeline.checks import require_passed
        from modyn_dagster.pipeline.stages import training_set_stage

        platform = modyn.platform()
        work = claimed(context, platform, assets.name)
        with working_attempt(platform, work.run, work.trigger):
            result = training_set_stage(work)
            yield from stage_result(assets, result, MlflowLinks(context, modyn_mlflow, platform).trigger(work))
            require_passed(result.checks)
        yield from check_outputs("training_set", assets.key("training_set"))

    return training_set
