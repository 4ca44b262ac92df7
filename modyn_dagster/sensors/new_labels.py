"""The sensor ``new_labels__<dataset>``: registers label files that are ready, and requests their ingestion."""

import json
from typing import TYPE_CHECKING

import dagster as dg

from modyn_dagster.assets.dagster_runs import BATCH_TAG, LABELS_TAG, unfinished_runs
from modyn_dagster.assets.specs import DatasetAssets, add_partitions, labels_of
from modyn_dagster.resources.platform import PlatformResource
from modyn_dagster.sensors.ingestion_requests import MOST_RUNS, patient_request
from modyn_dagster.sensors.ticks import bounded_tick

if TYPE_CHECKING:
    from modyn_dagster.pipeline.platform import Platform


def new_labels_sensor(assets: DatasetAssets) -> dg.SensorDefinition:
    """New label files of one dataset. Off until somebody switches it on; the cursor is what the last look saw."""
    sensor = f"new_labels__{assets.dataset.name}"

    @dg.sensor(
        name=sensor,
        asset_selection=dg.AssetSelection.assets(assets.key("labels")),
        minimum_interval_seconds=assets.dataset.sensor_interval,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"Looks for new label files of {assets.dataset.name}, registers them, and asks for their ingestion.",
    )
    def new_labels(context: dg.SensorEvaluationContext, modyn: PlatformResource) -> dg.SensorResult | dg.SkipReason:
        return bounded_tick(sensor, lambda: _tick(context, modyn.platform(), assets))

    return new_labels


def _tick(context: dg.SensorEvaluationContext, platform: "Platform", assets: DatasetAssets) -> dg.SensorResult:
    from modyn_dagster.assets.labels.asset import announce_labels
    from modyn_dagster.catalog.datasets import get_dataset
    from modyn_dagster.catalog.labels.label_batches import list_label_batches
    from modyn_dagster.ingestion.labels.registration import register_ready_labels

    name = assets.dataset.name
    spec, root = platform.project.datasets[name], platform.project.label_root_of(name)
    remembered = json.loads(context.cursor) if context.cursor else {}
    look = register_ready_labels(platform.engine, spec, root, remembered)
    # Asked before the catalog: what a run that has ended by then has ingested is not open afterwards.
    under_way = unfinished_runs(context.instance, {LABELS_TAG: name})
    with platform.transaction() as conn:
        batches = list_label_batches(conn, get_dataset(conn, name).id)
    waiting = [batch.partition_key for batch in batches if batch.state == "open"]
    add_partitions(context.instance, labels_of(name), [batch.partition_key for batch in batches])
    closed = remembered.get("closed", 0)
    if not under_way and closed != len(batches) - len(waiting):
        # A run was killed between the commit of a label batch and its event, or the command line has ingested some.
        closed = len(batches) - len(waiting)
        announce_labels(context.instance, platform, name, assets.translator)
    taken = {run.tags.get(BATCH_TAG) for run in under_way}
    requests = []
    for key in [key for key in waiting if key not in taken][: max(0, MOST_RUNS - len(under_way))]:
        tags = {LABELS_TAG: name, BATCH_TAG: key}
        request = patient_request(context.instance, key, tags, f"labels:{name}:{key}", assets.dataset.sensor_interval)
        if request is not None:
            requests.append(request)
    message = f"{len(look.registered)} new label batches, {len(look.waiting)} may still be written, {len(waiting)} to ingest"
    if requests:
        message += f", {len(requests)} runs asked for"
    context.log.info(message)
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else message,
        cursor=json.dumps({**look.state, "closed": closed}),
    )
