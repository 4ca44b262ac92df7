"""The sensor ``new_data__<dataset>``: registers batches that are ready, and asks for the ingestion of those still open."""

import json
from typing import TYPE_CHECKING

import dagster as dg

from modyn_dagster.assets.partitions import batches_of, unknown_partitions
from modyn_dagster.assets.specs import DatasetAssets
from modyn_dagster.resources.platform import PlatformResource
from modyn_dagster.sensors.database import or_what_is_down
from modyn_dagster.sensors.ingesting import ingestion_requests

if TYPE_CHECKING:
    from modyn_dagster.pipeline.platform import Platform


def new_data_sensor(assets: DatasetAssets) -> dg.SensorDefinition:
    """New batches of one dataset. Off until somebody switches it on; the cursor is what the last look saw."""

    @dg.sensor(
        name=f"new_data__{assets.dataset.name}",
        asset_selection=dg.AssetSelection.assets(assets.key("samples")),
        minimum_interval_seconds=assets.dataset.sensor_interval,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"Looks for new batches of {assets.dataset.name}, registers them in order, and asks for their ingestion.",
    )
    def new_data(context: dg.SensorEvaluationContext, modyn: PlatformResource) -> dg.SensorResult | dg.SkipReason:
        return or_what_is_down(lambda: _tick(context, modyn.platform(), assets))

    return new_data


def _tick(context: dg.SensorEvaluationContext, platform: "Platform", assets: DatasetAssets) -> dg.SensorResult:
    from modyn_dagster.catalog.batches import list_batches
    from modyn_dagster.catalog.datasets import get_dataset
    from modyn_dagster.ingestion.production import look_for_batches

    name = assets.dataset.name
    spec, root = platform.project.datasets[name], platform.project.root_of(name)
    look = look_for_batches(platform.engine, spec, root, json.loads(context.cursor) if context.cursor else None)
    with platform.transaction() as conn:
        batches = list_batches(conn, get_dataset(conn, name).id)
    partitions = batches_of(name)
    # Also those that the command line registered, or that a tick registered which did not come to its end.
    fresh = unknown_partitions(context.instance, partitions, [batch.partition_key for batch in batches])
    requests = ingestion_requests(context.instance, assets.dataset, [batch for batch in batches if batch.state == "open"])
    message = f"{len(look.registered)} new batches, {len(look.waiting)} may still be written, {len(requests)} to ingest"
    context.log.info(message)
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else message,
        dynamic_partitions_requests=[partitions.build_add_request(fresh)] if fresh else [],
        cursor=json.dumps(look.state),
    )
