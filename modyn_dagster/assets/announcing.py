"""Batches that were imported without Dagster, shown in Dagster: partitions and materializations, made up once."""

from typing import TYPE_CHECKING

import dagster as dg

from modyn_dagster.assets.partitions import add_partitions, batches_of
from modyn_dagster.assets.translator import AssetProps, ModynTranslator

if TYPE_CHECKING:
    from modyn_dagster.pipeline.platform import Platform


def announce_batches(
    instance: dg.DagsterInstance, platform: "Platform", dataset: str, translator: ModynTranslator | None = None
) -> int:
    """Add the partitions of all batches of a dataset, in ordinal order, and materialize those that are ingested but not shown.

    Returns how many were shown now. Calling it again shows nothing twice.
    """
    from modyn_dagster.assets.checks import check_evaluations
    from modyn_dagster.assets.metadata_samples import samples_metadata
    from modyn_dagster.catalog.batches import list_batches
    from modyn_dagster.ingestion.late import late_by_batch
    from modyn_dagster.pipeline.checks import in_order, labels_present

    props = AssetProps("samples", platform.project.datasets[dataset])
    key = (translator or ModynTranslator()).get_asset_spec(props).key
    dataset_id = platform.view(dataset).row.id
    with platform.transaction() as conn:
        batches = list_batches(conn, dataset_id)
    add_partitions(instance, batches_of(dataset), [batch.partition_key for batch in batches])
    shown = instance.get_materialized_partitions(key)
    fresh = [batch for batch in batches if batch.state == "ingested" and batch.partition_key not in shown]
    late = late_by_batch(platform.home, batches) if fresh else {}
    for batch in fresh:
        metadata = samples_metadata(batch, late[batch.ordinal])
        instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=batch.partition_key, metadata=metadata))
        checks = [labels_present(props.dataset, batch), in_order(batch, late[batch.ordinal])]
        for check in check_evaluations(key, batch.partition_key, checks):
            instance.report_runless_asset_event(check)
    return len(fresh)
