"""Contract with the installed Dagster: events stored in bulk are those that it makes of single ones, in all its tables."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster_postgres import PostgresEventLogStorage

from modyn_dagster.assets.checks import check_specs
from modyn_dagster.catalog.database.databases import create_databases
from modyn_dagster.catalog.database.urls import child_environment
from modyn_dagster.resources.event_store import AssetEvent, keep_connections, plan_in_bulk, report_in_bulk, store_in_bulk
from modyn_dagster.settings import Settings

KEYS = ("first", "second", "third")
ASSETS = ("left", "right")
CHECKS = [dg.AssetCheckKey(dg.AssetKey("left"), name) for name in ("labels_present", "in_order")]
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def made(suffix: str = "") -> list[AssetEvent]:
    """Materializations with and without tags and texts, and results of checks; one check is evaluated twice."""
    events: list[AssetEvent] = []
    for number, key in enumerate(KEYS):
        for asset, text in zip(ASSETS, (None, f"said{suffix}"), strict=True):
            tags = {"level": str(number)}
            events.append(dg.AssetMaterialization(asset, text, {"n": number}, partition=f"{key}{suffix}", tags=tags))
        events += [evaluated(f"{key}{suffix}", number, check) for check in CHECKS]
    return [*events, evaluated(f"{KEYS[0]}{suffix}", 1, CHECKS[0])]


def evaluated(key: str, number: int, check: dg.AssetCheckKey) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=check.asset_key,
        check_name=check.name,
        passed=number > 0,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"of {key}" if number == 1 else None,
        metadata={"n": number},
        blocking=False,
        partition=key,
    )


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.process)])
def storage(request: pytest.FixtureRequest, tmp_path: Path, instance: dg.DagsterInstance) -> Iterator[dg.DagsterInstance]:
    """An instance that keeps its events in memory, or where the product does."""
    if request.param == "memory":
        yield instance
        return
    settings: Settings = request.getfixturevalue("settings")
    create_databases(settings)
    url = child_environment(settings)["DAGSTER_PG_URL"]
    (tmp_path / "dagster.yaml").write_text(f"storage: {{postgres: {{postgres_url: {url!r}}}}}\ntelemetry: {{enabled: false}}\n")
    with dg.DagsterInstance.from_config(str(tmp_path)) as kept:
        keep_connections(kept)
        yield kept


def run_of(instance: dg.DagsterInstance, *, bulk: bool) -> dg.ExecuteInProcessResult:
    partitions = dg.StaticPartitionsDefinition(list(KEYS))
    specs = [dg.AssetSpec([asset], partitions_def=partitions, skippable=True) for asset in ASSETS]
    checks = check_specs("samples", dg.AssetKey("left"), partitions)

    @dg.multi_asset(name="both", specs=specs, check_specs=checks, backfill_policy=dg.BackfillPolicy.single_run())
    def both(context: dg.AssetExecutionContext) -> Iterator[AssetEvent | dg.Output[None]]:
        if not bulk or not store_in_bulk(context, made()):
            yield from made()
        for check in checks:
            yield dg.Output(None, output_name=check.get_python_identifier())

    tags = {"dagster/asset_partition_range_start": KEYS[0], "dagster/asset_partition_range_end": KEYS[-1]}
    return dg.materialize([both], instance=instance, tags=tags, run_config=QUIET)


def stored(instance: dg.DagsterInstance, run_id: str, suffix: str = "") -> dict[str, list[str]]:
    """Everything that Dagster tells of the events of one run, except when and in which run they were."""

    def plain(entry: dg.EventLogEntry) -> str:
        text = repr(entry._replace(timestamp=0.0))
        return text.replace(run_id, "the run") if run_id else text.replace(suffix, "")

    told = {}
    for asset in ASSETS:
        records = instance.fetch_materializations(dg.AssetKey(asset), limit=100, ascending=True).records
        ours = [record for record in records if record.run_id == run_id and (record.partition_key or "").endswith(suffix)]
        told[asset] = [plain(record.event_log_entry) for record in ours]
        tags = instance.event_log_storage.get_event_tags_for_asset(dg.AssetKey(asset))
        told[f"tags of {asset}"] = [repr(sorted(place.items())) for place in tags]
    for check in CHECKS:
        history = instance.event_log_storage.get_asset_check_execution_history(check, limit=100)
        ours_checked = [found for found in history if found.run_id == run_id and (found.partition or "").endswith(suffix)]
        told[check.name] = sorted(f"{found.status} {plain(found.event)}" for found in ours_checked if found.event is not None)
    return told


@pytest.mark.soak("screens")
def test_events_stored_in_bulk_are_those_of_yielded_ones(storage: dg.DagsterInstance) -> None:
    results = []
    for bulk in (False, True):
        result = run_of(storage, bulk=bulk)
        assert result.success
        results.append(stored(storage, result.run_id))
        logged = storage.all_logs(result.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        assert len(logged) == len(KEYS) * len(CHECKS) + 1
    yielded, in_bulk = results
    assert in_bulk == yielded
    assert [len(in_bulk[name]) for name in (*ASSETS, *(check.name for check in CHECKS))] == [len(KEYS)] * 4
    assert all(storage.get_materialized_partitions(dg.AssetKey(asset)) == set(KEYS) for asset in ASSETS)
    newest = storage.get_latest_materialization_event(dg.AssetKey("right"))
    assert newest is not None
    assert newest.run_id == result.run_id


@pytest.mark.soak("screens")
@pytest.mark.process
@pytest.mark.parametrize("storage", ["postgres"], indirect=True)
def test_checks_stored_with_their_materializations_are_shown_as_current_on_the_partitions(storage: dg.DagsterInstance) -> None:
    assert run_of(storage, bulk=True).success
    infos = storage.event_log_storage.get_asset_check_partition_info(CHECKS)
    assert {(info.check_key.name, info.partition_key) for info in infos} >= {
        (check.name, key) for check in CHECKS for key in KEYS
    }
    assert all(info.is_current for info in infos if info.partition_key is not None)


def planned(instance: dg.DagsterInstance) -> list[str]:
    """Everything that Dagster tells of a run that announces its work and does none: its events, and the assets' newest run."""
    partitions = dg.StaticPartitionsDefinition(list(KEYS))
    specs = [dg.AssetSpec([asset], partitions_def=partitions, skippable=True) for asset in ASSETS]

    @dg.multi_asset(name="both", specs=specs, backfill_policy=dg.BackfillPolicy.single_run())
    def both() -> Iterator[AssetEvent]:
        yield from ()
        raise RuntimeError("before the first event")

    tags = {"dagster/asset_partition_range_start": KEYS[0], "dagster/asset_partition_range_end": KEYS[-1]}
    run_id = dg.materialize([both], instance=instance, tags=tags, run_config=QUIET, raise_on_error=False).run_id
    logged = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
    told = [repr(entry._replace(timestamp=0.0)).replace(run_id, "the run") for entry in logged]
    records = instance.get_asset_records([dg.AssetKey(asset) for asset in ASSETS])
    return sorted([*told, *(f"{r.asset_entry.asset_key} {r.asset_entry.last_run_id == run_id}" for r in records)])


def test_plans_are_told_alike_in_bulk_and_one_by_one(storage: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_EVENT_BATCH_SIZE", raising=False)
    single = planned(storage)
    assert len(single) == len(ASSETS) * (len(KEYS) + 1)
    monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", "2")
    plan_in_bulk(storage)
    assert planned(storage) == single


def test_events_of_no_run_stored_in_bulk_are_those_of_reported_ones(storage: dg.DagsterInstance) -> None:
    for event in made("-one")[:-1]:
        storage.report_runless_asset_event(event)
    assert report_in_bulk(storage, made("-all")[:-1])
    assert stored(storage, "", "-all") == stored(storage, "", "-one")
    assert len(stored(storage, "", "-all")["in_order"]) == len(KEYS)
    assert report_in_bulk(storage, [])


def test_another_dagster_gets_single_events(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(dg.OpExecutionContext, "get_step_execution_context")
    result = run_of(instance, bulk=True)
    assert result.success
    monkeypatch.undo()
    assert stored(instance, result.run_id) == stored(instance, run_of(instance, bulk=True).run_id)


@pytest.mark.soak("screens")
@pytest.mark.parametrize("storage", ["postgres"], indirect=True)
@pytest.mark.process
def test_in_other_tables_nothing_is_stored_so_that_single_events_can_be(storage: dg.DagsterInstance) -> None:
    kept = storage.event_log_storage
    assert isinstance(kept, PostgresEventLogStorage)
    with kept.index_connection() as conn:
        conn.execute(sa.text("drop index idx_asset_check_executions_unique"))
    assert not report_in_bulk(storage, made()[:-1])
    assert all(not storage.get_materialized_partitions(dg.AssetKey(asset)) for asset in ASSETS)
    assert run_of(storage, bulk=True).success
    assert all(storage.get_materialized_partitions(dg.AssetKey(asset)) == set(KEYS) for asset in ASSETS)
