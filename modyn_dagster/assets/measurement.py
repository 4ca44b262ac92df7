"""The asset ``<pipeline>/measurement``: what the triggering policy needs to know, measured ahead of the sensor."""

from collections.abc import Iterator

import dagster as dg

from modyn_dagster.assets.dagster_runs import log_waits, reserved_for
from modyn_dagster.assets.specs import PipelineAssets, batches_of
from modyn_dagster.resources.platform import PlatformResource
from modyn_dagster.resources.run_classes import pipeline_tags


def measurement_asset(assets: PipelineAssets) -> dg.AssetsDefinition:
    """Measure from the live run's cursor on, until a decision fires or the data end; also beyond the run's own partition.

    Run again it measures only what is missing. Replays measure for themselves and show it here too.
    """
    model = dg.AssetDep(assets.key("model"), partition_mapping=dg.AllPartitionMapping())
    spec = assets.spec("measurement").merge_attributes(deps=[assets.samples_key(), model])

    @dg.multi_asset(
        name=assets.op("measurement"),
        specs=[spec.replace_attributes(partitions_def=batches_of(assets.dataset.name), skippable=True)],
        backfill_policy=dg.BackfillPolicy.single_run(),
        op_tags=pipeline_tags("measuring", assets.pipeline),
        pool=f"live__{assets.name}",
    )
    def measurement(context: dg.AssetExecutionContext, modyn: PlatformResource) -> Iterator[dg.AssetMaterialization]:
        from modyn_dagster.assets.metadata.decisions import ShownDecisions, measurement_metadata
        from modyn_dagster.errors import StaleRun
        from modyn_dagster.pipeline.decide.measure_ahead import measure_patiently
        from modyn_dagster.pipeline.decide.waiting import Patience

        platform, shown = modyn.platform(), ShownDecisions()
        try:
            patience = Patience(platform.settings.max_wait, log_waits(context.log.warning))
            with reserved_for(context, assets.pipeline, "measuring"):
                for event in measure_patiently(platform, assets.name, patience):
                    metadata = measurement_metadata(platform, event, shown)
                    key = event.batch.partition_key
                    context.log.info(f"batch {key}: {len(event.decisions)} decision points are measured")
                    yield dg.AssetMaterialization(assets.key("measurement"), partition=key, metadata=metadata)
        except StaleRun as error:
            context.log.info(f"{error}: a newer model measures from here on")

    return measurement
