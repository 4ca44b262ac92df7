"""The asset ``<pipeline>/champion``: the model that is live by promotion, with a materialization per change."""

from collections.abc import Iterator

import dagster as dg

from modyn_dagster.assets.checks import check_outputs, check_specs
from modyn_dagster.assets.promotion.shown import check_again, last_shown, show_champions
from modyn_dagster.assets.specs import PipelineAssets
from modyn_dagster.resources.event_store import AssetEvent
from modyn_dagster.resources.platform import PlatformResource


def champion_asset(assets: PipelineAssets) -> dg.AssetsDefinition:
    """Champion of the live run. Evaluations show its changes; to materialize it by hand shows those that are not shown yet,
    or takes the check again.

    It changes nothing: the gate, the command line and the job ``promotion__<pipeline>`` do.
    """
    evaluation = dg.AssetDep(assets.key("evaluation"), partition_mapping=dg.AllPartitionMapping())
    spec = assets.spec("champion").merge_attributes(deps=[evaluation])

    @dg.multi_asset(
        name=assets.op("champion"),
        specs=[spec.replace_attributes(skippable=True)],
        check_specs=check_specs("champion", spec.key),
    )
    def champion(context: dg.AssetExecutionContext, modyn: PlatformResource) -> Iterator[AssetEvent | dg.Output[None]]:
        platform, before = modyn.platform(), last_shown(context.instance, assets)
        yield from show_champions(context, assets, platform)
        if last_shown(context.instance, assets) == before:
            # Dagster waits for a result of the check that it planned.
            yield from check_again(assets, platform)
        yield from check_outputs("champion", spec.key)

    return champion
