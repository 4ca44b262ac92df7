"""The sensor ``new_data__<dataset>``: registers batches that are ready, and requests the ingestion of open ones."""

import json
from typing import TYPE_CHECKING

import dagster as dg

from modyn_dagster.assets.dagster_runs import DATASET_TAG, unfinished_runs
from modyn_dagster.assets.specs import DatasetAssets, add_partitions, batches_of
from modyn_dagster.resources.platform import PlatformResource
from modyn_dagster.sensors.ingestion_requests import ingestion_requests
from modyn_dagster.sensors.ticks import bounded_tick

if TYPE_CHECKING:
    from modyn_dagster.pipeline.platform import Platform


def new_data_sensor(assets: DatasetAssets) -> dg.SensorDefinition:
    """New batches of one dataset. Off until somebody switches it on; the cursor is what the last look saw."""
    sensor = f"new_data__{assets.dataset.name}"

    @dg.sensor(
        name=sensor,
        asset_selection=dg.AssetSelection.assets(assets.key("samples")),
        minimum_interval_seconds=assets.dataset.sensor_interval,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"Looks for new batches of {assets.dataset.name}, registers them in order, and asks for their ingestion.",
    )
    def new_data(context: dg.SensorEvaluationContext, modyn: PlatformResource) -> dg.SensorResult | dg.SkipReason:
        return bounded_tick(sensor, lambda: _tick(context, modyn.platform(), assets))

    return new_data


def _tick(context: dg.SensorEvaluationContext, platform: "Platform", assets: DatasetAssets) -> dg.SensorResult:
    from modyn_dagster.catalog.batches import list_batches, partition_keys
    from modyn_dagster.catalog.datasets import get_dataset
    from modyn_dagster.ingestion.registration import register_ready_batches

    name = assets.dataset.name
    spec, root = platform.project.datasets[name], platform.project.root_of(name)
    remembered = json.loads(context.cursor) if context.cursor else {}
    look = register_ready_batches(platform.engine, spec, root, remembered)
    # Asked before the catalog: what a run that has ended by then has ingested is not open afterwards.
    under_way = unfinished_runs(context.instance, {DATASET_TAG: name})
    with platform.transaction() as conn:
        dataset_id = get_dataset(conn, name).id
        keys, waiting = partition_keys(conn, dataset_id), list_batches(conn, dataset_id, "open")
    # Also those that the command line registered, or that a tick registered which did not come to its end. Dagster would ask for
    # each by itself if the tick requested them.
    add_partitions(context.instance, batches_of(name), keys)
    closed = remembered.get("closed", 0)
    if not under_way and closed != len(keys) - len(waiting):
        closed = len(keys) - len(waiting)
        _show(context.instance, platform, assets, dataset_id)
    requests = ingestion_requests(context.instance, assets.dataset, under_way, waiting)
    message = f"{len(look.registered)} new batches, {len(look.waiting)} may still be written, {len(waiting)} to ingest"
    if requests:
        message += f", {len(requests)} runs asked for"
    context.log.info(message)
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else message,
        cursor=json.dumps({**look.state, "closed": closed}),
    )


def _show(instance: dg.DagsterInstance, platform: "Platform", assets: DatasetAssets, dataset_id: int) -> None:
    """Show ingested batches that Dagster does not: a run was killed between the commit of a batch and its event."""
    from modyn_dagster.assets.samples import announce_ingested
    from modyn_dagster.catalog.batches import list_batches

    with platform.transaction() as conn:
        batches = list_batches(conn, dataset_id)
    announce_ingested(instance, platform, assets, batches)
