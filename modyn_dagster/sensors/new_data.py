"""The sensors ``new_data__<dataset>`` and ``new_labels__<dataset>``: registration of ready batches, and runs that ingest them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import dagster as dg

from modyn_dagster.assets.dagster_runs import DATASET_TAG, LABELS_TAG, unfinished_runs
from modyn_dagster.assets.specs import DatasetAssets, add_partitions, batches_of, labels_of
from modyn_dagster.resources.platform import PlatformResource
from modyn_dagster.sensors.ingestion_requests import IngestionRuns, ingestion_requests
from modyn_dagster.sensors.ticks import bounded_tick

if TYPE_CHECKING:
    from modyn_dagster.catalog.batches import BatchRow
    from modyn_dagster.catalog.labels.label_batches import LabelBatchRow
    from modyn_dagster.ingestion.registration import Registered
    from modyn_dagster.pipeline.platform import Platform


@dataclass(frozen=True, slots=True)
class _Stream:
    """Batches of samples, or of labels, of one dataset, as their sensor sees them.

    Attributes:
        noun: of the batches, for messages.
        partitions: of their asset.
        runs: that ingest them.
        look: registers what is ready, given the state of the previous look.
        listed: partition keys of all batches, and the open ones, in ordinal order.
        show: shows in Dagster the ingested ones that it does not.
    """

    noun: str
    partitions: dg.DynamicPartitionsDefinition
    runs: IngestionRuns
    look: "Callable[[Any], Registered[BatchRow] | Registered[LabelBatchRow]]"
    listed: "Callable[[], tuple[list[str], Sequence[BatchRow] | Sequence[LabelBatchRow]]]"
    show: Callable[[], object]


def new_data_sensor(assets: DatasetAssets) -> dg.SensorDefinition:
    """New batches of one dataset. Off until somebody switches it on; the cursor is what the last look saw."""
    return _sensor(f"new_data__{assets.dataset.name}", "samples", "batches", assets, _samples)


def new_labels_sensor(assets: DatasetAssets) -> dg.SensorDefinition:
    """New label files of one dataset. Off until somebody switches it on; the cursor is what the last look saw."""
    return _sensor(f"new_labels__{assets.dataset.name}", "labels", "label batches", assets, _labels)


def _sensor(
    name: str,
    asset: Literal["samples", "labels"],
    noun: str,
    assets: DatasetAssets,
    stream_of: "Callable[[dg.DagsterInstance, Platform, DatasetAssets], _Stream]",
) -> dg.SensorDefinition:
    @dg.sensor(
        name=name,
        asset_selection=dg.AssetSelection.assets(assets.key(asset)),
        minimum_interval_seconds=assets.dataset.sensor_interval,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"Looks for new {noun} of {assets.dataset.name}, registers them in order, and asks for their ingestion.",
    )
    def new_batches(context: dg.SensorEvaluationContext, modyn: PlatformResource) -> dg.SensorResult | dg.SkipReason:
        return bounded_tick(name, lambda: _tick(context, stream_of(context.instance, modyn.platform(), assets)))

    return new_batches


def _tick(context: dg.SensorEvaluationContext, stream: _Stream) -> dg.SensorResult:
    remembered = json.loads(context.cursor) if context.cursor else {}
    look = stream.look(remembered)
    # Asked before the catalog: what a run that has ended by then has ingested is not open afterwards.
    under_way = unfinished_runs(context.instance, dict([stream.runs.tag]))
    keys, waiting = stream.listed()
    # Also those that the command line registered, or that a tick registered which did not come to its end. Dagster would ask for
    # each by itself if the tick requested them.
    add_partitions(context.instance, stream.partitions, keys)
    closed = remembered.get("closed", 0)
    if not under_way and closed != len(keys) - len(waiting):
        # A run was killed between the commit of a batch and its event, or the command line has ingested some.
        closed = len(keys) - len(waiting)
        stream.show()
    requests = ingestion_requests(context.instance, stream.runs, under_way, waiting)
    message = f"{len(look.registered)} new {stream.noun}, {len(look.waiting)} may still be written, {len(waiting)} to ingest"
    if requests:
        message += f", {len(requests)} runs asked for"
    context.log.info(message)
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else message,
        cursor=json.dumps({**look.state, "closed": closed}),
    )


def _samples(instance: dg.DagsterInstance, platform: "Platform", assets: DatasetAssets) -> _Stream:
    from modyn_dagster.assets.samples import announce_ingested
    from modyn_dagster.catalog.batches import list_batches, partition_keys
    from modyn_dagster.catalog.datasets import get_dataset
    from modyn_dagster.ingestion.registration import register_ready_batches

    name = assets.dataset.name
    spec, root = platform.project.datasets[name], platform.project.root_of(name)

    def listed() -> "tuple[list[str], list[BatchRow]]":
        with platform.transaction() as conn:
            dataset_id = get_dataset(conn, name).id
            return partition_keys(conn, dataset_id), list_batches(conn, dataset_id, "open")

    def show() -> None:
        with platform.transaction() as conn:
            batches = list_batches(conn, get_dataset(conn, name).id)
        announce_ingested(instance, platform, assets, batches)

    runs = IngestionRuns((DATASET_TAG, name), name, assets.dataset.sensor_interval)
    return _Stream(
        "batches", batches_of(name), runs, lambda state: register_ready_batches(platform.engine, spec, root, state), listed, show
    )


def _labels(instance: dg.DagsterInstance, platform: "Platform", assets: DatasetAssets) -> _Stream:
    from modyn_dagster.assets.labels.asset import announce_labels
    from modyn_dagster.catalog.datasets import get_dataset
    from modyn_dagster.catalog.labels.label_batches import list_label_batches
    from modyn_dagster.ingestion.registration import register_ready_labels

    name = assets.dataset.name
    spec, root = platform.project.datasets[name], platform.project.label_root_of(name)

    def listed() -> "tuple[list[str], list[LabelBatchRow]]":
        with platform.transaction() as conn:
            batches = list_label_batches(conn, get_dataset(conn, name).id)
        return [batch.partition_key for batch in batches], [batch for batch in batches if batch.state == "open"]

    return _Stream(
        "label batches",
        labels_of(name),
        IngestionRuns((LABELS_TAG, name), f"labels:{name}", assets.dataset.sensor_interval),
        lambda state: register_ready_labels(platform.engine, spec, root, state),
        listed,
        lambda: announce_labels(instance, platform, name, assets.translator),
    )
