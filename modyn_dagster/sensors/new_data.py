"""The sensor ``new_data__<dataset>``: registers batches that are ready, and requests the ingestion of open ones."""

import json
import time
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

import dagster as dg

from modyn_dagster.assets.dagster_runs import BATCH_TAG, DATASET_TAG, ended_runs, unfinished_runs
from modyn_dagster.assets.specs import DatasetAssets, batches_of, unknown_partitions
from modyn_dagster.backoff import growing_pause
from modyn_dagster.resources.platform import PlatformResource
from modyn_dagster.sensors.ticks import bounded_tick
from modyn_dagster.spec.dataset import DatasetSpec

if TYPE_CHECKING:
    from modyn_dagster.catalog.batches import BatchRow
    from modyn_dagster.pipeline.platform import Platform


#: A tick has a minute; every batch costs it a query and a run to be made.
_MOST_PER_TICK: Final = 50
_LONGEST_PAUSE: Final = 3600.0


def ingestion_requests(instance: dg.DagsterInstance, dataset: DatasetSpec, batches: "Sequence[BatchRow]") -> list[dg.RunRequest]:
    """One run per open batch that none is under way for, in order of the stream.

    A run that ended and left its batch open met something that passes (a full disk, a server that restarted): it is asked
    for again, without end, each time after twice the pause, up to an hour.
    """
    going = {run.tags.get(BATCH_TAG) for run in unfinished_runs(instance, {DATASET_TAG: dataset.name})}
    idle = (batch.partition_key for batch in batches if batch.partition_key not in going)
    asked = (_ingestion_run(instance, dataset, partition) for partition in idle)
    return list(islice((request for request in asked if request is not None), _MOST_PER_TICK))


def _ingestion_run(instance: dg.DagsterInstance, dataset: DatasetSpec, partition: str) -> dg.RunRequest | None:
    tags = {DATASET_TAG: dataset.name, BATCH_TAG: partition}
    ended = ended_runs(instance, tags)
    if ended is None:
        return None
    if ended:
        pause = growing_pause(dataset.sensor_interval, len(ended), _LONGEST_PAUSE)
        if time.time() - (ended[0].end_time or 0) < pause:
            return None
    return dg.RunRequest(run_key=f"{dataset.name}:{partition}:{len(ended) + 1}", partition_key=partition, tags=tags)


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
    look = register_ready_batches(platform.engine, spec, root, json.loads(context.cursor) if context.cursor else None)
    with platform.transaction() as conn:
        dataset_id = get_dataset(conn, name).id
        keys, waiting = partition_keys(conn, dataset_id), list_batches(conn, dataset_id, "open")
    partitions = batches_of(name)
    # Also those that the command line registered, or that a tick registered which did not come to its end.
    fresh = unknown_partitions(context.instance, partitions, keys)
    requests = ingestion_requests(context.instance, assets.dataset, waiting)
    message = f"{len(look.registered)} new batches, {len(look.waiting)} may still be written, {len(requests)} to ingest"
    context.log.info(message)
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else message,
        dynamic_partitions_requests=[partitions.build_add_request(fresh)] if fresh else [],
        cursor=json.dumps(look.state),
    )
