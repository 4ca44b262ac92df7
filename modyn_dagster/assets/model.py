"""The asset ``<pipeline>/model``: training."""

from collections.abc import Iterator

import dagster as dg

from modyn_dagster.assets.checks import check_outputs
from modyn_dagster.assets.claim import claimed
from modyn_dagster.assets.events import OpEvent, stage_result
from modyn_dagster.assets.progress import log_training
from modyn_dagster.assets.specs import PipelineAssets
from modyn_dagster.assets.tracking import MlflowLinks
from modyn_dagster.resources.fast_path import FastPathResource
from modyn_dagster.resources.mlflow import MlflowResource
from modyn_dagster.resources.platform import PlatformResource


def model_asset(assets: PipelineAssets) -> dg.AssetsDefinition:
    """Train the model of a trigger. Materializing it by hand trains again and must reach the same hash.

    Nothing is materialized, and nothing evaluated, for a trigger whose training set is empty.
    """

    @dg.multi_asset(**assets.of_trigger("model", assets.key("training_set")))
    def model(
        context: dg.AssetExecutionContext,
        modyn: PlatformResource,
        modyn_mlflow: MlflowResource,
        modyn_fast_path: FastPathResource,
    ) -> Iterator[OpEvent]:
        from modyn_dagster.pipeline.attempts import working_attempt
        from modyn_dagster.pipeline.checks import require_passed
        from modyn_dagster.pipeline.stages import model_stage

        platform = modyn.platform()
        work = claimed(context, platform, assets.name)
        with working_attempt(platform, work.run, work.trigger):
            result = model_stage(work, log_training(context.log.info), modyn_fast_path.settings())
        url = MlflowLinks(context, modyn_mlflow, platform).trigger(work)
        if result is not None:
            yield from stage_result(assets, result, url)
            require_passed(result.checks)
        yield from check_outputs("model", assets.key("model"))

    return model
