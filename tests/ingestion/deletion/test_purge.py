"""Purging: nothing of the samples is left in our files and tables, and everything else is what it was."""

import hashlib
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastpath import SampleStore, errors
from fastpath.format.index import BatchIndex
from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.deletions import block_deletions, deletion
from modyn_dagster.errors import CorruptFile, DeletedKey, UnknownKey
from modyn_dagster.ingestion.deletion.delete import delete_samples
from modyn_dagster.ingestion.deletion.purge import PurgedBatch, purge_samples
from modyn_dagster.ingestion.deletion.shard import ranges_of_strings
from modyn_dagster.ingestion.formats.base import Ranges
from modyn_dagster.keys import KeyArray, key_of
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.values.digest import checksum_of
from tests.examples import examples
from tests.ingestion.world import World, dataset_spec

PARQUET = dataset_spec(format={"kind": "parquet"}, attributes=["user"])
FILES = dataset_spec(
    format={"kind": "files", "suffixes": [".png"]},
    batches={"kind": "directory"},
    time={"source": "file_name", "pattern": r"(?P<time>\d{8})", "format": "%Y%m%d"},
    label={"from": {"source": "folder"}},
)


def secret(i: int) -> str:
    return f"secret-of-sample-{i:03d}" * (i % 3)


def write_parquet(world: World, name: str, rows: range) -> None:
    begin = datetime(2020, 1, 1)
    table = {
        "time": [begin + timedelta(days=i) for i in rows],
        "x": [i + 0.5 for i in rows],
        "text": [secret(i) for i in rows],
        "user": [f"user-{i:03d}" for i in rows],
        "label": [f"class-{i % 3}" for i in rows],
    }
    pq.write_table(pa.table(table), world.root / name)


def keys_of_positions(ordinal: int, positions: list[int]) -> KeyArray:
    return np.array([key_of(ordinal, position) for position in positions], dtype=np.uint64)


def erase(world: World, spec: DatasetSpec, keys: KeyArray) -> list[PurgedBatch]:
    delete_samples(world.engine, world.home, world.dataset(spec), keys)
    return purge_samples(world.engine, world.home, spec, world.dataset(spec), keys)


def everywhere(world: World, spec: DatasetSpec) -> bytes:
    """All bytes of our files, and everything Postgres would tell of the samples."""
    return b"".join(world.files().values()) + repr(world.rows(spec)).encode()


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=st.lists(st.sets(st.integers(0, 19), min_size=1, max_size=8), min_size=1, max_size=3))
def test_of_purged_rows_only_key_and_time_are_left_and_the_others_read_as_before(world: World, rounds: list[set[int]]) -> None:
    spec = PARQUET.model_copy(update={"name": f"d{len(list((world.home / 'batches').glob('*')))}"})
    write_parquet(world, "a.parquet", range(20))
    world.run_import(spec)
    before, samples = world.rows(spec), world.reader(spec).read(world.keys(spec))
    gone: set[int] = set()
    for positions in rounds:
        [purged] = erase(world, spec, keys_of_positions(0, sorted(positions)))
        assert purged.n_purged == len(positions - gone)
        assert (purged.in_place, purged.copied_from) == ({}, ["a.parquet"])
        gone |= positions
    [batch] = world.batches(spec)
    shards = [path.read_bytes() for path in (world.home / "shards" / spec.name).iterdir()]
    assert len(shards) == 1
    for i in range(20):
        for text in filter(None, (secret(i)[:20], f"user-{i:03d}")):
            assert (text.encode() in shards[0]) == (i not in gone)
    expected = [row if i not in gone else (*row[:2], None, None, None) for i, row in enumerate(before)]
    assert world.rows(spec) == expected
    index = BatchIndex.open(world.home / str(batch.index_path), batch.index_checksum)
    assert index.labels is not None
    assert index.labels.tolist() == [-1 if i in gone else i % 3 for i in range(20)]
    np.testing.assert_array_equal(index.times, samples.times)
    assert [file.checksum for file in index.files] == [hashlib.blake2b(shards[0], digest_size=16).hexdigest()]
    left = [i for i in range(20) if i not in gone]
    found = world.reader(spec).read(keys_of_positions(0, left))
    for name, values in samples.columns.items():
        assert found.columns[name].tolist() == values[left].tolist()
    with pytest.raises(DeletedKey):
        world.reader(spec).read(keys_of_positions(0, [min(gone)]))


def test_packed_files_are_zeroed_and_the_originals_are_named(world: World) -> None:
    contents = {f"day/cats/2020010{i + 1}.png": bytes([65 + i]) * (10 + i) for i in range(5)}
    for name, content in contents.items():
        world.write(name, content)
    big = b"big" * 500_000
    world.write("day/cats/20200109.png", big)
    world.write("day/_READY", "")
    world.run_import(FILES)
    [purged] = erase(world, FILES, keys_of_positions(0, [1, 3, 5]))
    assert purged.n_purged == 3
    assert purged.in_place == {"day/cats/20200109.png": 1}
    assert purged.copied_from == ["day/cats/20200102.png", "day/cats/20200104.png"]
    [shard] = (world.home / "shards" / FILES.name).iterdir()
    zeroed = [bytes(len(content)) if i in (1, 3) else content for i, content in enumerate(contents.values())]
    assert shard.read_bytes() == b"".join(zeroed)
    assert (world.root / "day/cats/20200109.png").read_bytes() == big
    assert world.reader(FILES).read_blobs(keys_of_positions(0, [4, 0, 2])) == [list(contents.values())[i] for i in (4, 0, 2)]


def test_of_files_read_in_place_labels_and_attributes_go_and_the_bytes_are_said_to_stay(world: World) -> None:
    spec = dataset_spec(attributes=["x"])
    text = "time,x,label\n2020-01-01,1,cat\n2020-01-02,2,dog\n"
    world.write("a.csv", text)
    world.run_import(spec)
    [purged] = erase(world, spec, keys_of_positions(0, [1]))
    assert (purged.n_purged, purged.in_place, purged.copied_from) == (1, {"a.csv": 1}, [])
    assert [row[2:] for row in world.rows(spec)] == [(0, None, {"x": 1}), (None, None, None)]
    assert (world.root / "a.csv").read_text() == text
    assert world.reader(spec).read(keys_of_positions(0, [0])).columns["x"].tolist() == [1]


def test_regression_targets_are_blanked(world: World) -> None:
    spec = dataset_spec(label={"kind": "target", "from": {"source": "column", "column": "label"}})
    world.write("a.csv", "time,label\n2020-01-01,1.5\n2020-01-02,2.5\n")
    world.run_import(spec)
    erase(world, spec, keys_of_positions(0, [0]))
    [batch] = world.batches(spec)
    index = BatchIndex.open(world.home / str(batch.index_path), batch.index_checksum)
    assert index.targets is not None
    np.testing.assert_array_equal(index.targets, [np.nan, 2.5])
    assert [row[3] for row in world.rows(spec)] == [None, 2.5]


def test_purging_again_changes_nothing_and_still_says_where_originals_are(world: World) -> None:
    write_parquet(world, "a.parquet", range(6))
    world.run_import(PARQUET)
    erase(world, PARQUET, keys_of_positions(0, [2]))
    before = world.files(), world.batches(PARQUET), everywhere(world, PARQUET)
    [again] = erase(world, PARQUET, keys_of_positions(0, [2]))
    assert (again.n_purged, again.copied_from) == (0, ["a.parquet"])
    assert (world.files(), world.batches(PARQUET), everywhere(world, PARQUET)) == before


def test_only_deleted_samples_are_purged(world: World) -> None:
    write_parquet(world, "a.parquet", range(6))
    world.run_import(PARQUET)
    delete_samples(world.engine, world.home, world.dataset(PARQUET), keys_of_positions(0, [1]))
    [purged] = purge_samples(world.engine, world.home, PARQUET, world.dataset(PARQUET), keys_of_positions(0, [1, 2]))
    assert purged.n_purged == 1
    assert world.reader(PARQUET).read(keys_of_positions(0, [2])).columns["text"].tolist() == [secret(2)]
    with transaction(world.engine) as conn:
        assert conn.execute(sa.select(deletion.c.purged_at)).scalar_one() is not None
    with pytest.raises(UnknownKey):
        purge_samples(world.engine, world.home, PARQUET, world.dataset(PARQUET), keys_of_positions(1, [0]))


def test_a_shard_that_is_not_what_it_was_is_named_and_left(world: World) -> None:
    write_parquet(world, "a.parquet", range(6))
    world.run_import(PARQUET)
    shard = world.home / "shards" / PARQUET.name / "0.bin"
    damaged = b"\xff" + shard.read_bytes()[1:]
    shard.write_bytes(damaged)
    with pytest.raises(CorruptFile, match=r"0\.bin"):
        erase(world, PARQUET, keys_of_positions(0, [3]))
    assert shard.read_bytes() == damaged
    assert [path.name for path in shard.parent.iterdir()] == ["0.bin"]
    shard.unlink()
    with pytest.raises(CorruptFile, match=r"0\.bin"):
        erase(world, PARQUET, keys_of_positions(0, [3]))


def test_a_batch_that_was_purged_is_still_the_one_that_was_ingested(world: World) -> None:
    write_parquet(world, "a.parquet", range(6))
    world.run_import(PARQUET)
    erase(world, PARQUET, keys_of_positions(0, [2]))
    assert world.ingest(PARQUET, "a").already_ingested
    [batch] = world.batches(PARQUET)
    assert batch.index_path == "batches/d/0.1.arrow"
    assert checksum_of(world.home / batch.index_path) == batch.index_checksum


def test_a_store_that_is_opened_without_the_catalog_reads_what_was_rewritten_and_knows_what_was_deleted(world: World) -> None:
    write_parquet(world, "a.parquet", range(6))
    write_parquet(world, "b.parquet", range(6))
    world.run_import(PARQUET)
    before = world.reader(PARQUET).read_blobs(keys_of_positions(0, [0, 5]))
    erase(world, PARQUET, keys_of_positions(0, [2]))
    with SampleStore.open((world.home / "batches" / PARQUET.name).glob("*.arrow")) as store:
        assert store.n_batches == 2
        assert [bytes(blob) for blob in store.read_blobs(keys_of_positions(0, [0, 5]))] == before
        assert len(store.read(keys_of_positions(1, [2]))) == 1
        with pytest.raises(errors.DeletedKey):
            store.read(keys_of_positions(0, [2]))


def staged_files(world: World) -> list[str]:
    return sorted(path.name.rpartition(".")[0][1:][:-9] for path in world.home.rglob(".*.tmp"))


def test_two_purges_of_a_batch_write_before_they_lock_and_both_come_to_their_end(world: World) -> None:
    write_parquet(world, "a.parquet", range(20))
    world.run_import(PARQUET)
    gone = [1, 4, 7, 8]
    delete_samples(world.engine, world.home, world.dataset(PARQUET), keys_of_positions(0, gone))

    def purge(positions: list[int]) -> int:
        keys = keys_of_positions(0, positions)
        return sum(batch.n_purged for batch in purge_samples(world.engine, world.home, PARQUET, world.dataset(PARQUET), keys))

    with ThreadPoolExecutor(2) as threads:
        with transaction(world.engine) as conn:
            block_deletions(conn, world.dataset(PARQUET).id)
            both = [threads.submit(purge, gone[:2]), threads.submit(purge, gone[2:])]
            limit = time.monotonic() + 20
            while staged_files(world) != ["0.1.arrow"] * 2 + ["0.1.bin"] * 2 and time.monotonic() < limit:
                time.sleep(0.01)
            assert staged_files(world) == ["0.1.arrow"] * 2 + ["0.1.bin"] * 2
        assert [done.result() for done in both] == [2, 2]
    assert staged_files(world) == []
    [batch] = world.batches(PARQUET)
    assert batch.index_path == "batches/d/0.2.arrow"
    [shard] = (world.home / "shards" / PARQUET.name).iterdir()
    for i in range(20):
        assert (f"user-{i:03d}".encode() in shard.read_bytes()) == (i not in gone)
    assert [row[4] is None for row in world.rows(PARQUET)] == [i in gone for i in range(20)]


def test_a_shard_that_was_cut_short_is_named(world: World) -> None:
    write_parquet(world, "a.parquet", range(6))
    world.run_import(PARQUET)
    shard = world.home / "shards" / PARQUET.name / "0.bin"
    for content in (shard.read_bytes()[:40], b""):
        shard.write_bytes(content)
        with pytest.raises(CorruptFile, match=r"0\.bin"):
            erase(world, PARQUET, keys_of_positions(0, [5]))


def test_finding_the_strings_of_many_rows_copies_no_rows(world: World) -> None:
    write_parquet(world, "a.parquet", range(6))
    world.run_import(PARQUET)
    columns = world.dataset(PARQUET).columns or ()
    [width] = {len(blob) for blob in world.reader(PARQUET).read_blobs(keys_of_positions(0, [0, 1]))}
    n = 200_000
    rows = Ranges(np.zeros(n, np.int64), np.full(n, width))
    n_strings = sum(column.dtype == "string" for column in columns)
    tracemalloc.start()
    try:
        found = ranges_of_strings(world.home / "shards" / PARQUET.name / "0.bin", rows, columns)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.offsets) == n_strings * n
    # What is found, once more while it is put together, and one column at a time.
    assert peak < n * 8 * (2 * 2 * n_strings + 4)
