"""Batches: registration, states, visibility, and their source files."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.batches import BatchRow, batch, get_batch, list_batches, mark_failed, visible_batches
from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.datasets import dataset as dataset_table
from modyn_dagster.catalog.registration.batches import Announcement, known_paths, register, register_again
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.errors import CatalogError, UnknownName
from modyn_dagster.keys import MAX_ORDINAL
from tests.ingestion.world import dataset_spec


@pytest.fixture
def dataset_id(engine: sa.Engine) -> int:
    with transaction(engine) as conn:
        return ensure_dataset(conn, dataset_spec()).id


def announcement(name: str, key: str = "") -> Announcement:
    return Announcement(key or name, {"paths": [name]})


def register_names(engine: sa.Engine, dataset_id: int, *names: str) -> list[BatchRow]:
    with transaction(engine) as conn:
        return register(conn, dataset_id, [announcement(name) for name in names])


def close(engine: sa.Engine, row: BatchRow, state: str) -> None:
    with transaction(engine) as conn:
        conn.execute(sa.update(batch).where(batch.c.id == row.id).values(state=state))


def test_ordinals_follow_the_order_of_announcement(engine: sa.Engine, dataset_id: int) -> None:
    register_names(engine, dataset_id, "b", "a")
    rows = register_names(engine, dataset_id, "c")
    with transaction(engine) as conn:
        found = list_batches(conn, dataset_id)
    assert [(row.ordinal, row.partition_key, row.state) for row in found] == [
        (0, "b", "open"),
        (1, "a", "open"),
        (2, "c", "open"),
    ]
    assert rows == found[2:]


def test_a_path_is_registered_once(engine: sa.Engine, dataset_id: int) -> None:
    register_names(engine, dataset_id, "a")
    assert [row.partition_key for row in register_names(engine, dataset_id, "a", "b")] == ["b"]
    with transaction(engine) as conn:
        assert known_paths(conn, dataset_id) == {"a", "b"}


def test_a_partition_key_that_is_taken_gets_a_number(engine: sa.Engine, dataset_id: int) -> None:
    with transaction(engine) as conn:
        rows = register(conn, dataset_id, [announcement(f"a{suffix}", "a") for suffix in (".csv", ".txt", ".tsv")])
    assert [row.partition_key for row in rows] == ["a", "a~2", "a~3"]


def test_processes_that_register_at_once_share_no_ordinal_and_no_path(engine: sa.Engine, dataset_id: int) -> None:
    names = [[f"{worker}_{i}" for i in range(5)] + ["shared"] for worker in range(4)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda own: register_names(engine, dataset_id, *own), names))
    rows = [row for result in results for row in result]
    assert sorted(row.ordinal for row in rows) == list(range(4 * 5 + 1))
    for result in results:
        assert [row.ordinal for row in result] == sorted(row.ordinal for row in result)


def test_pipelines_see_what_is_ingested_up_to_the_first_open_batch(engine: sa.Engine, dataset_id: int) -> None:
    rows = register_names(engine, dataset_id, *"abcde")
    for row, state in zip(rows, ("ingested", "failed", "ingested", "open", "ingested")):
        close(engine, row, state)
    with transaction(engine) as conn:
        assert [row.partition_key for row in visible_batches(conn, dataset_id)] == ["a", "c"]
    close(engine, rows[3], "failed")
    with transaction(engine) as conn:
        assert [row.partition_key for row in visible_batches(conn, dataset_id)] == ["a", "c", "e"]
        assert [row.partition_key for row in list_batches(conn, dataset_id, "failed")] == ["b", "d"]


def test_a_failed_batch_is_delivered_again_at_the_end_of_the_stream_once(engine: sa.Engine, dataset_id: int) -> None:
    first, _ = register_names(engine, dataset_id, "a", "b")
    with transaction(engine) as conn:
        mark_failed(conn, first, "bad", {"a": [1, 2]})
    with transaction(engine) as conn:
        failed = get_batch(conn, dataset_id, "a")
        again = register_again(conn, failed)
        assert register_again(conn, failed) is None
        repaired = get_batch(conn, dataset_id, "a")
    assert again is not None
    assert (failed.state, failed.error, failed.source["seen"]) == ("failed", "bad", {"a": [1, 2]})
    assert (again.ordinal, again.partition_key, again.state) == (2, "a~2", "open")
    assert again.source == {"paths": ["a"], "key": "a"}
    assert repaired.repaired_by == again.id
    with transaction(engine) as conn:
        mark_failed(conn, again, "still bad", {})
        third = register_again(conn, get_batch(conn, dataset_id, "a~2"))
    assert third is not None
    assert third.partition_key == "a~3"


def test_only_an_open_batch_can_fail(engine: sa.Engine, dataset_id: int) -> None:
    [row] = register_names(engine, dataset_id, "a")
    close(engine, row, "ingested")
    with transaction(engine) as conn:
        mark_failed(conn, row, "too late", {})
        assert get_batch(conn, dataset_id, "a").state == "ingested"


def test_an_unknown_partition_key_is_named(engine: sa.Engine, dataset_id: int) -> None:
    with transaction(engine) as conn, pytest.raises(UnknownName, match="no batch 'x'"):
        get_batch(conn, dataset_id, "x")


def test_ordinals_end_where_keys_would_no_longer_fit(engine: sa.Engine, dataset_id: int) -> None:
    with transaction(engine) as conn:
        conn.execute(sa.update(dataset_table).values(next_ordinal=MAX_ORDINAL - 1))
    assert register_names(engine, dataset_id, "a")[0].ordinal == MAX_ORDINAL - 1
    with pytest.raises(CatalogError, match="would pass batch ordinal"):
        register_names(engine, dataset_id, "b")
