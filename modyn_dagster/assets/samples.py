"""The asset ``<dataset>/samples``: ingestion, batches imported without Dagster, and the check ``fresh``."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import dagster as dg

from modyn_dagster.assets.checks import check_evaluations, check_outputs, check_specs, check_summaries
from modyn_dagster.assets.specs import DatasetAssets, add_partitions, batches_of
from modyn_dagster.assets.translator import ModynTranslator
from modyn_dagster.errors import DataError, UnexpectedFault, UnknownName
from modyn_dagster.resources.event_store import AssetEvent, keep_connections, report_in_bulk, show_at_once
from modyn_dagster.resources.platform import PlatformResource
from modyn_dagster.resources.run_classes import class_tags

if TYPE_CHECKING:
    from modyn_dagster.catalog.batches import BatchRow
    from modyn_dagster.catalog.datasets import DatasetRow
    from modyn_dagster.pipeline.checks import CheckResult
    from modyn_dagster.pipeline.platform import Platform


_BatchEvent = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation
SamplesEvent = dg.MaterializeResult[None] | _BatchEvent | dg.Output[None]


def samples_asset(assets: DatasetAssets) -> dg.AssetsDefinition:
    """Ingest registered batches. Materializing one again compares checksums: equal is a no-op, different an error."""
    partitions = batches_of(assets.dataset.name)
    key = assets.key("samples")

    @dg.multi_asset(
        name=assets.op("samples"),
        specs=[assets.spec("samples").replace_attributes(partitions_def=partitions, skippable=True)],
        check_specs=check_specs("samples", key),
        backfill_policy=dg.BackfillPolicy.single_run(),
        op_tags=class_tags("ingestion"),
    )
    def samples(context: dg.AssetExecutionContext, modyn: PlatformResource) -> Iterator[SamplesEvent]:
        yield from _Ingestion(context, modyn.platform(), assets).events()
        yield from check_outputs("samples", key)

    return samples


class _Ingestion:
    """The batches of one Dagster run: one, or a range of them. A bad one fails the run after the others were ingested."""

    def __init__(self, context: dg.AssetExecutionContext, platform: "Platform", assets: DatasetAssets) -> None:
        self._context = context
        self._platform = platform
        self._assets = assets
        self._key = assets.key("samples")

    def events(self) -> Iterator[SamplesEvent]:
        from modyn_dagster.assets.metadata.batches import failure, samples_metadata
        from modyn_dagster.pipeline.checks import labels_present, require_passed, samples_in_order

        done, failures = {}, []
        judged: dict[str, list[CheckResult]] = {}
        # Where nothing follows in the same run, each batch is shown at once: a run that is killed leaves one out at most.
        at_once = len(self._context.partition_keys) > 1 and self._context.run.asset_selection == {self._key}
        if at_once:
            keep_connections(self._context.instance)
        for partition in self._context.partition_keys:
            try:
                self._ingest(partition)
            except DataError as error:
                # The traceback of a fault that nobody foresaw; of another the message says it all.
                self._context.log.error(f"batch {partition}: {error}", exc_info=isinstance(error, UnexpectedFault))
                failures.append(error)
                batch, _ = self._read(partition)
                yield failure(self._key, batch, batch.error or str(error))
                continue
            batch, dataset = self._read(partition)
            n_late = self._late(batch)
            metadata = samples_metadata(batch, dataset, n_late)
            checks = [labels_present(self._assets.dataset, batch), samples_in_order(batch, n_late)]
            judged[partition] = checks
            evaluations = check_evaluations(self._key, partition, checks)
            if at_once:
                shown = dg.AssetMaterialization(self._key, partition=partition, metadata=metadata)
                yield from show_at_once(self._context, [shown, *evaluations])
            else:
                done[partition] = metadata
                yield from evaluations
            if any(check.blocking and not check.passed for check in checks):
                break
        yield from check_summaries(self._key, judged)
        for checks in judged.values():
            require_passed(checks)
        if failures:
            for partition, metadata in done.items():
                yield dg.AssetMaterialization(self._key, partition=partition, metadata=metadata)
            raise failures[0] if len(failures) == 1 else _several(failures)
        # Metadata by partition and one result, rather than events: what is downstream in the same run may start.
        for partition, metadata in done.items():
            self._context.add_asset_metadata(metadata, asset_key=self._key, partition_key=partition)
        if not at_once:
            yield dg.MaterializeResult(asset_key=self._key)

    def _late(self, batch: "BatchRow") -> int:
        from modyn_dagster.catalog.batches import time_reached_before
        from modyn_dagster.data.batch_index import count_late

        with self._platform.transaction() as conn:
            reached = time_reached_before(conn, batch.dataset_id, batch.ordinal)
        return count_late(self._platform.home, batch, reached)

    def _ingest(self, partition: str) -> None:
        from modyn_dagster.ingestion.ingest import ingest_batch

        platform, name = self._platform, self._assets.dataset.name
        spec, root = platform.project.datasets[name], platform.project.root_of(name)
        try:
            result = ingest_batch(platform.engine, platform.home, spec, root, partition)
        except UnknownName as error:
            registered = f"batch (only new_data__{name} and `modyn-dagster dataset import` register them) with partition key"
            raise UnknownName(registered, partition) from error
        self._context.log.info(f"batch {partition}: {result.n_samples} samples" + " (were there)" * result.already_ingested)

    def _read(self, partition: str) -> "tuple[BatchRow, DatasetRow]":
        from modyn_dagster.catalog.batches import get_batch
        from modyn_dagster.catalog.datasets import get_dataset

        with self._platform.transaction() as conn:
            dataset = get_dataset(conn, self._assets.dataset.name)
            return get_batch(conn, dataset.id, partition), dataset


def _several(failures: "Sequence[DataError]") -> dg.Failure:
    """Error of a run with several bad batches: Dagster shows it on the partition of each."""
    return dg.Failure("\n".join([f"{len(failures)} batches failed", *map(str, failures)]))


_FRESH: Final = "fresh"


def freshness_check(assets: DatasetAssets) -> dg.AssetChecksDefinition:
    """To be run by hand; the sensor ``freshness__<dataset>`` evaluates it without a run."""

    @dg.asset_check(
        asset=assets.key("samples"),
        name=_FRESH,
        description="Data still arrive: the newest ingested batch is younger than the dataset's `freshness`.",
    )
    def fresh(modyn: PlatformResource) -> dg.AssetCheckResult:
        from modyn_dagster.pipeline.checks import freshness

        found = freshness(modyn.platform(), assets.dataset.name)
        return dg.AssetCheckResult(
            passed=found.passed, severity=dg.AssetCheckSeverity.ERROR, description=found.description, metadata=found.metadata
        )

    return fresh


def freshness_evaluation(key: dg.AssetKey, found: "CheckResult") -> dg.AssetCheckEvaluation:
    """Evaluation of the freshness check, as Dagster shows it."""
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=_FRESH,
        passed=found.passed,
        severity=dg.AssetCheckSeverity.ERROR,
        description=found.description,
        metadata=found.metadata,
    )


#: Batches whose events are stored in one transaction: they are a few megabytes.
_ANNOUNCED_TOGETHER: Final = 500


def announce_batches(
    instance: dg.DagsterInstance,
    platform: "Platform",
    dataset: str,
    translator: ModynTranslator | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Add the partitions of all batches of a dataset, in ordinal order, and materialize those that are ingested but not shown.

    Returns how many were shown now. Calling it again shows nothing twice, and after a kill the rest: a batch is shown with its
    checks or not at all. A failed batch gets a run of its own, which fails with the reason: Dagster shows it on the partition.
    ``progress`` is called with the number of batches shown and of those to show.
    """
    from modyn_dagster.catalog.batches import list_batches

    assets = DatasetAssets(platform.project.datasets[dataset], [], translator or ModynTranslator())
    with platform.transaction() as conn:
        batches = list_batches(conn, platform.view(dataset).row.id)
    add_partitions(instance, batches_of(dataset), [batch.partition_key for batch in batches])
    n_shown = announce_ingested(instance, platform, assets, batches, progress=progress)
    _announce_failures(instance, platform, assets, batches)
    return n_shown


def announce_ingested(
    instance: dg.DagsterInstance,
    platform: "Platform",
    assets: DatasetAssets,
    batches: "Sequence[BatchRow]",
    *,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Materialize those of all ``batches`` of a dataset that are ingested but not shown; returns their number."""
    from modyn_dagster.assets.metadata.batches import samples_metadata
    from modyn_dagster.data.batch_index import late_by_batch
    from modyn_dagster.pipeline.checks import labels_present, samples_in_order

    key = assets.key("samples")
    shown = instance.get_materialized_partitions(key)
    fresh = [batch for batch in batches if batch.state == "ingested" and batch.partition_key not in shown]
    if not fresh:
        return 0
    row, late = platform.view(assets.dataset.name).row, late_by_batch(platform.home, batches)
    keep_connections(instance)
    for start in range(0, len(fresh), _ANNOUNCED_TOGETHER):
        events: list[AssetEvent] = []
        for batch in fresh[start : start + _ANNOUNCED_TOGETHER]:
            metadata = samples_metadata(batch, row, late[batch.ordinal])
            events.append(dg.AssetMaterialization(key, partition=batch.partition_key, metadata=metadata))
            checks = [labels_present(assets.dataset, batch), samples_in_order(batch, late[batch.ordinal])]
            events += check_evaluations(key, batch.partition_key, checks)
        if not report_in_bulk(instance, events):
            for event in events:
                instance.report_runless_asset_event(event)
        if progress is not None:
            progress(min(start + _ANNOUNCED_TOGETHER, len(fresh)), len(fresh))
    return len(fresh)


#: Failed batches that are shown by a run each; of older ones the event alone is stored.
_MOST_RUNS: Final = 20


def _announce_failures(
    instance: dg.DagsterInstance, platform: "Platform", assets: DatasetAssets, batches: "Sequence[BatchRow]"
) -> None:
    from modyn_dagster.assets.metadata.batches import failure

    key = assets.key("samples")
    places = {batch.partition_key: dg.AssetRecordsFilter(key, asset_partitions=[batch.partition_key]) for batch in batches}
    failed = [batch for batch in batches if batch.state == "failed"]
    fresh = [batch for batch in failed if not instance.fetch_observations(places[batch.partition_key], limit=1).records]
    for batch in fresh[:-_MOST_RUNS]:
        instance.report_runless_asset_event(failure(key, batch, batch.error or "unknown"))
    if not fresh:
        return
    own = dg.Definitions([samples_asset(assets)], resources={"modyn": PlatformResource(settings=platform.settings)})
    quiet = {"console": {"config": {"log_level": "CRITICAL"}}}
    for batch in fresh[-_MOST_RUNS:]:
        own.resolve_implicit_global_asset_job_def().execute_in_process(
            {"loggers": quiet}, instance, batch.partition_key, asset_selection=[key], raise_on_error=False
        )
