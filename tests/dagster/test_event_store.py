"""Contract with the installed Dagster: materializations stored in bulk are the events that yielding them makes."""

from collections.abc import Iterator

import dagster as dg
import pytest

from modyn_dagster.resources.event_store import keep_connections, store_in_bulk

KEYS = ("first", "second", "third")
ASSETS = ("left", "right")


def made() -> list[dg.AssetMaterialization]:
    return [
        dg.AssetMaterialization([asset], partition=key, metadata={"n": number, "asset": asset}, description=text)
        for number, key in enumerate(KEYS)
        for asset, text in zip(ASSETS, (None, "said"), strict=True)
    ]


def run_of(instance: dg.DagsterInstance, *, bulk: bool) -> dg.ExecuteInProcessResult:
    partitions = dg.StaticPartitionsDefinition(list(KEYS))
    specs = [dg.AssetSpec([asset], partitions_def=partitions, skippable=True) for asset in ASSETS]

    @dg.multi_asset(name="both", specs=specs, backfill_policy=dg.BackfillPolicy.single_run())
    def both(context: dg.AssetExecutionContext) -> Iterator[dg.AssetMaterialization]:
        keep_connections(context.instance)
        if not bulk or not store_in_bulk(context, made()):
            yield from made()

    tags = {"dagster/asset_partition_range_start": KEYS[0], "dagster/asset_partition_range_end": KEYS[-1]}
    return dg.materialize(
        [both], instance=instance, tags=tags, run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    )


def stored(instance: dg.DagsterInstance, run_id: str, asset: str) -> list[str]:
    """Everything about the events of an asset in one run, except when and in which run they were."""
    records = instance.fetch_materializations(dg.AssetKey([asset]), limit=100, ascending=True).records
    entries = [record.event_log_entry for record in records if record.run_id == run_id]
    return [repr(entry._replace(timestamp=0.0)).replace(run_id, "the run") for entry in entries]


def test_events_stored_in_bulk_are_those_of_yielded_ones(instance: dg.DagsterInstance) -> None:
    yielded, bulk = (run_of(instance, bulk=bulk) for bulk in (False, True))
    assert yielded.success
    assert bulk.success
    for asset in ASSETS:
        assert len(stored(instance, bulk.run_id, asset)) == len(KEYS)
        assert stored(instance, bulk.run_id, asset) == stored(instance, yielded.run_id, asset)
        assert instance.get_materialized_partitions(dg.AssetKey([asset])) == set(KEYS)


def test_another_dagster_gets_single_events(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(dg.OpExecutionContext, "get_step_execution_context")
    result = run_of(instance, bulk=True)
    assert result.success
    for asset in ASSETS:
        assert len(stored(instance, result.run_id, asset)) == len(KEYS)
