"""The asset ``<dataset>/samples``: ingestion."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg

from modyn_dagster.assets.checks import check_evaluations, check_outputs, check_specs
from modyn_dagster.assets.partitions import batches_of
from modyn_dagster.assets.specs import DatasetAssets
from modyn_dagster.errors import DataError, UnknownName
from modyn_dagster.resources.platform import PlatformResource

if TYPE_CHECKING:
    from modyn_dagster.catalog.batches import BatchRow
    from modyn_dagster.pipeline.platform import Platform

SamplesEvent = dg.MaterializeResult[None] | dg.AssetMaterialization | dg.AssetCheckEvaluation | dg.Output[None]


def samples_asset(assets: DatasetAssets) -> dg.AssetsDefinition:
    """Ingest registered batches. Materializing one again compares checksums: equal is a no-op, different an error."""
    partitions = batches_of(assets.dataset.name)
    key = assets.key("samples")

    @dg.multi_asset(
        name=assets.op("samples"),
        specs=[assets.spec("samples").replace_attributes(partitions_def=partitions, skippable=True)],
        check_specs=check_specs("samples", key, partitions),
        backfill_policy=dg.BackfillPolicy.single_run(),
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
        from modyn_dagster.assets.metadata_samples import samples_metadata
        from modyn_dagster.pipeline.checks import in_order, labels_present, require_passed

        done, failures = {}, []
        for partition in self._context.partition_keys:
            try:
                batch = self._ingest(partition)
            except DataError as error:
                self._context.log.error(f"batch {partition}: {error}")
                failures.append(error)
                continue
            n_late = self._late(batch)
            done[partition] = samples_metadata(batch, n_late)
            checks = [labels_present(self._assets.dataset, batch), in_order(batch, n_late)]
            yield from check_evaluations(self._key, partition, checks)
            require_passed(checks)
        if failures:
            for partition, metadata in done.items():
                yield dg.AssetMaterialization(self._key, partition=partition, metadata=metadata)
            raise failures[0]
        # Metadata by partition and one result, rather than events: what is downstream in the same run may start.
        for partition, metadata in done.items():
            self._context.add_asset_metadata(metadata, asset_key=self._key, partition_key=partition)
        yield dg.MaterializeResult(asset_key=self._key)

    def _late(self, batch: "BatchRow") -> int:
        from modyn_dagster.catalog.batches import time_reached_before
        from modyn_dagster.ingestion.late import count_late

        with self._platform.transaction() as conn:
            reached = time_reached_before(conn, batch.dataset_id, batch.ordinal)
        return count_late(self._platform.home, batch, reached)

    def _ingest(self, partition: str) -> "BatchRow":
        from modyn_dagster.catalog.batches import get_batch
        from modyn_dagster.catalog.datasets import get_dataset
        from modyn_dagster.ingestion.ingest import ingest_batch

        platform, name = self._platform, self._assets.dataset.name
        spec, root = platform.project.datasets[name], platform.project.root_of(name)
        try:
            result = ingest_batch(platform.engine, platform.home, spec, root, partition)
        except UnknownName as error:
            registered = f"batch (only new_data__{name} and `modyn-dagster dataset import` register them) with partition key"
            raise UnknownName(registered, partition) from error
        self._context.log.info(f"batch {partition}: {result.n_samples} samples" + " (were there)" * result.already_ingested)
        with platform.transaction() as conn:
            return get_batch(conn, get_dataset(conn, name).id, partition)
