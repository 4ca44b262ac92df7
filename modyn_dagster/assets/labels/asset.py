"""The asset ``<dataset>/labels``: ingestion of label batches, and those that were imported without Dagster."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg

from modyn_dagster.assets.checks import check_evaluations, check_outputs, check_specs, check_summaries
from modyn_dagster.assets.labels.entries import label_checks, labels_failure, labels_metadata
from modyn_dagster.assets.samples import SamplesEvent
from modyn_dagster.assets.specs import DatasetAssets, add_partitions, labels_of
from modyn_dagster.assets.translator import ModynTranslator
from modyn_dagster.errors import DataError, UnexpectedFault, UnknownName
from modyn_dagster.resources.event_store import AssetEvent, report_in_bulk
from modyn_dagster.resources.platform import PlatformResource
from modyn_dagster.resources.run_classes import class_tags

if TYPE_CHECKING:
    from modyn_dagster.catalog.labels.label_batches import LabelBatchRow
    from modyn_dagster.pipeline.checks import CheckResult
    from modyn_dagster.pipeline.platform import Platform
    from modyn_dagster.reporting.label_coverage import LabelCoverage


def labels_asset(assets: DatasetAssets) -> dg.AssetsDefinition:
    """Ingest registered label batches. Materializing one again compares checksums: equal is a no-op, different an error."""
    key = assets.key("labels")

    @dg.multi_asset(
        name=assets.op("labels"),
        specs=[assets.spec("labels").replace_attributes(partitions_def=labels_of(assets.dataset.name), skippable=True)],
        check_specs=check_specs("labels", key),
        backfill_policy=dg.BackfillPolicy.single_run(),
        op_tags=class_tags("ingestion"),
    )
    def labels(context: dg.AssetExecutionContext, modyn: PlatformResource) -> Iterator[SamplesEvent]:
        yield from _events(context, modyn.platform(), assets)
        yield from check_outputs("labels", key)

    return labels


def _events(context: dg.AssetExecutionContext, platform: "Platform", assets: DatasetAssets) -> Iterator[SamplesEvent]:
    """Ingest the label batches of a run. A bad one fails the run after the others were ingested."""
    from modyn_dagster.ingestion.labels.ingest_labels import ingest_labels

    name, key = assets.dataset.name, assets.key("labels")
    spec, root = platform.project.datasets[name], platform.project.label_root_of(name)
    failures: list[DataError] = []
    judged: dict[str, list[CheckResult]] = {}
    ingested: list[LabelBatchRow] = []
    for partition in context.partition_keys:
        try:
            result = ingest_labels(platform.engine, platform.home, spec, root, partition)
        except UnknownName as error:
            registered = (
                f"label batch (only new_labels__{name} and `modyn-dagster dataset import` register them) with partition key"
            )
            raise UnknownName(registered, partition) from error
        except DataError as error:
            # The traceback of a fault that nobody foresaw; of another the message says it all.
            context.log.error(f"label batch {partition}: {error}", exc_info=isinstance(error, UnexpectedFault))
            failures.append(error)
            batch = _read(platform, name, partition)
            yield labels_failure(key, batch, batch.error or str(error))
            continue
        context.log.info(f"label batch {partition}: {result.n_labels} labels, {result.n_waiting} wait for their samples")
        ingested.append(_read(platform, name, partition))
    if ingested:
        # Counted once, after the last one: it reads all labels and samples of the dataset.
        coverage = _coverage(platform, name)
        for batch in ingested:
            partition = batch.partition_key
            judged[partition] = label_checks(batch, coverage)
            yield dg.AssetMaterialization(key, partition=partition, metadata=labels_metadata(batch, coverage))
            yield from check_evaluations(key, partition, judged[partition])
    yield from check_summaries(key, judged)
    if failures:
        raise failures[0] if len(failures) == 1 else dg.Failure("\n".join(map(str, failures)))


def announce_labels(
    instance: dg.DagsterInstance, platform: "Platform", dataset: str, translator: ModynTranslator | None = None
) -> int:
    """Add the partitions of all label batches of a dataset, and show those that are closed but not shown yet.

    Returns the number of ingested ones that were shown now. Calling it again shows nothing twice, and after a kill the rest.
    """
    from modyn_dagster.catalog.labels.label_batches import list_label_batches

    assets = DatasetAssets(platform.project.datasets[dataset], [], translator or ModynTranslator())
    key = assets.key("labels")
    with platform.transaction() as conn:
        batches = list_label_batches(conn, platform.view(dataset).row.id)
    add_partitions(instance, labels_of(dataset), [batch.partition_key for batch in batches])
    shown = instance.get_materialized_partitions(key)
    fresh = [batch for batch in batches if batch.state == "ingested" and batch.partition_key not in shown]
    # Coverage is that of now: it belongs to the newest label batch alone.
    coverage = _coverage(platform, dataset) if fresh else None
    events: list[AssetEvent] = []
    for batch in fresh:
        newest = coverage if batch is fresh[-1] else None
        events.append(dg.AssetMaterialization(key, partition=batch.partition_key, metadata=labels_metadata(batch, newest)))
        if newest is not None:
            events += check_evaluations(key, batch.partition_key, label_checks(batch, newest))
    for batch in batches:
        place = dg.AssetRecordsFilter(key, asset_partitions=[batch.partition_key])
        if batch.state == "failed" and not instance.fetch_observations(place, limit=1).records:
            instance.report_runless_asset_event(labels_failure(key, batch, batch.error or "unknown"))
    if events and not report_in_bulk(instance, events):
        for event in events:
            instance.report_runless_asset_event(event)
    return len(fresh)


def _read(platform: "Platform", dataset: str, partition: str) -> "LabelBatchRow":
    from modyn_dagster.catalog.datasets import get_dataset
    from modyn_dagster.catalog.labels.label_batches import get_label_batch

    with platform.transaction() as conn:
        return get_label_batch(conn, get_dataset(conn, dataset).id, partition)


def _coverage(platform: "Platform", dataset: str) -> "LabelCoverage":
    from modyn_dagster.catalog.batches import list_batches
    from modyn_dagster.catalog.datasets import get_dataset
    from modyn_dagster.catalog.labels.label_files import label_files
    from modyn_dagster.reporting.label_coverage import label_coverage

    with platform.transaction() as conn:
        row = get_dataset(conn, dataset)
        batches, files = list_batches(conn, row.id), label_files(conn, row.id)
    return label_coverage(platform.home, platform.project.datasets[dataset], batches, files)
