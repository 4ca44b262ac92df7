"""Batches whose files were corrected: their replacements, and replacements that are killed at any step and started again."""

import multiprocessing
import signal
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.deletions import deletion
from modyn_dagster.catalog.registration.batches import register_replacement
from modyn_dagster.errors import DataError, DeletedKey, DuplicateFile, RunError, UnknownName
from modyn_dagster.ingestion.replacement import replace_batch, replaceable_batch
from modyn_dagster.keys import key_of
from modyn_dagster.spec.dataset import DatasetSpec
from tests.ingestion.killing import DONE, work_until
from tests.ingestion.world import World, dataset_spec

CSV = dataset_spec()


def text(*rows: int) -> str:
    return "time,x,label\n" + "".join(f"2024-01-01T00:00:{row:02d}Z,{row},{row % 2}\n" for row in rows)


def replace(world: World, spec: DatasetSpec = CSV, key: str = "a") -> str:
    batch = replaceable_batch(world.engine, spec, str(world.root), key)
    return replace_batch(world.engine, world.home, spec, str(world.root), batch).partition_key


def present(world: World, spec: DatasetSpec = CSV) -> list[int]:
    """Column ``x`` of all samples that can be read, in the order of the stream."""
    keys = [key for key in world.keys(spec).tolist() if not _is_deleted(world, spec, key)]
    return [int(x) for x in world.reader(spec).read(np.array(keys, dtype=np.uint64)).columns["x"]]


def _is_deleted(world: World, spec: DatasetSpec, key: int) -> bool:
    with transaction(world.engine) as conn:
        where = (deletion.c.dataset_id == world.dataset(spec).id) & (deletion.c.key == key)
        return conn.execute(sa.select(deletion.c.id).where(where)).one_or_none() is not None


def test_the_corrected_file_comes_at_the_end_and_the_old_samples_are_deleted(world: World) -> None:
    world.write("a.csv", text(1, 2, 3))
    world.write("b.csv", text(4))
    world.run_import(CSV)
    world.write("a.csv", text(1, 2, 33, 34))
    assert replace(world) == "a~2"
    assert present(world) == [4, 1, 2, 33, 34]
    old, _, new = world.batches(CSV)
    assert (old.n_deleted, new.ordinal, new.source["replaces"]) == (3, 2, ["a"])
    with pytest.raises(DeletedKey):
        world.reader(CSV).read(np.array([key_of(0, 0)], dtype=np.uint64))
    with transaction(world.engine) as conn:
        assert set(conn.execute(sa.select(deletion.c.reason)).scalars()) == {"replaced by a~2"}
    assert replace(world) == "a~2"
    assert len(world.batches(CSV)) == 3


def test_a_replacement_is_replaced_by_its_own_key(world: World) -> None:
    world.write("a.csv", text(1, 2))
    world.run_import(CSV)
    for n, (key, row) in enumerate([("a", 3), ("a~2", 4), ("a~3", 5)], 2):
        world.write("a.csv", text(row, 50 + n))
        assert replace(world, key=key) == f"a~{n}"
        assert present(world) == [row, 50 + n]
    assert world.batches(CSV)[-1].source["replaces"] == ["a~3", "a~2", "a"]


def test_a_correction_that_cannot_be_ingested_leaves_the_old_samples_until_another_one_can(world: World) -> None:
    spec = dataset_spec(format={"kind": "parquet"}, label=None)

    def write(*rows: int) -> None:
        times = pa.array([1_700_000_000_000_000 + row for row in rows], pa.timestamp("us"))
        pq.write_table(pa.table({"time": times, "x": list(rows)}), world.root / "a.parquet")

    world.root.mkdir(exist_ok=True)
    write(1, 2)
    world.run_import(spec)
    (world.root / "a.parquet").write_bytes(b"half a file")
    with pytest.raises(DataError):
        replace(world, spec)
    assert world.states(spec) == {"a": "ingested", "a~2": "failed"}
    assert present(world, spec) == [1, 2]
    write(1, 22)
    assert replace(world, spec) == "a~3"
    assert present(world, spec) == [1, 22]
    assert world.batches(spec)[1].repaired_by == world.batches(spec)[2].id


def test_an_import_completes_a_replacement_that_was_only_registered(world: World) -> None:
    world.write("a.csv", text(1, 2))
    world.run_import(CSV)
    world.write("a.csv", text(9))
    world.write("b.csv", text(4))
    with transaction(world.engine) as conn:
        register_replacement(conn, world.batches(CSV)[0])
    world.run_import(CSV)
    assert present(world) == [9, 4]


def test_what_cannot_be_replaced_is_refused(world: World) -> None:
    world.write("a.csv", text(1, 2))
    world.write("b.csv", "time,x,label\nnever,1,1\n")
    world.run_import(CSV)
    with pytest.raises(RunError, match="its files are those that were ingested; correct them first"):
        replace(world)
    with pytest.raises(RunError, match="batch b is failed, only ingested ones are replaced"):
        replace(world, key="b")
    with pytest.raises(UnknownName, match="no batch 'c'"):
        replace(world, key="c")
    (world.root / "a.csv").unlink()
    with pytest.raises(DataError, match=r"a\.csv: is missing; put the corrected file of batch a there"):
        replace(world)
    sliced = dataset_spec(name="sliced")
    world.write("a.csv", text(1, 2))
    (world.root / "b.csv").unlink()
    world.run_import(sliced, by="count:1")
    world.write("a.csv", text(1, 3))
    with pytest.raises(RunError, match="is a slice of files that other batches share"):
        replace(world, sliced, world.batches(sliced)[0].partition_key)


def test_another_batch_with_a_replaced_file_is_still_a_duplicate(world: World) -> None:
    listed = dataset_spec(name="listed", batches={"kind": "manifest", "pattern": "*.m.csv"})
    world.write("a.csv", text(1, 2))
    world.write("one.m.csv", "file\na.csv\n")
    world.write("one.m.csv_READY", "")
    world.run_import(listed)
    world.write("a.csv", text(3))
    replace(world, listed, world.batches(listed)[0].partition_key)
    world.write("two.m.csv", "file\na.csv\n")
    world.write("two.m.csv_READY", "")
    [(_, error)] = world.run_import(listed).failed
    assert isinstance(error, DuplicateFile)


def outcome(world: World, spec: DatasetSpec) -> dict[str, Any]:
    batches = world.batches(spec)
    return {
        "batches": [(b.partition_key, b.state, b.n_deleted, b.deleted_version, b.deleted_checksum) for b in batches],
        "rows": world.rows(spec),
        "present": present(world, spec),
        "files": sorted(path.replace(spec.name, "") for path in world.files() if f"/{spec.name}/" in path),
    }


def replace_in_a_process(world: World, spec: DatasetSpec, step: int) -> int | None:
    # Connections that a fork takes along would be used by two processes.
    world.engine.dispose()
    arguments = (step, world.engine.url, lambda engine: replace(World(engine, world.home, world.root), spec))
    process = multiprocessing.get_context("fork").Process(target=work_until, args=arguments)
    process.start()
    process.join()
    return process.exitcode


@pytest.mark.soak("laws-data")
def test_a_replacement_killed_at_any_step_and_started_again_ends_the_same(world: World) -> None:
    def prepared(name: str) -> DatasetSpec:
        spec = dataset_spec(name=name)
        world.write("a.csv", text(1, 2, 3))
        world.run_import(spec)
        world.write("a.csv", text(1, 22))
        return spec

    undisturbed = prepared("undisturbed")
    assert replace_in_a_process(world, undisturbed, 0) == DONE
    expected = outcome(world, undisturbed)
    assert expected["present"] == [1, 22]
    for step in count(1):
        spec = prepared(f"killed_{step}")
        exit_code = replace_in_a_process(world, spec, step)
        if exit_code == DONE:
            break
        assert exit_code == -signal.SIGKILL
        with transaction(world.engine) as conn:
            n_deleted = conn.scalar(sa.select(sa.func.count()).where(deletion.c.dataset_id == world.dataset(spec).id))
        # Never both old and new samples, nor none.
        assert (n_deleted == 3) == (world.states(spec).get("a~2") == "ingested")
        assert replace(world, spec) == "a~2"
        assert outcome(world, spec) == expected, f"killed at step {step}"
    # An index and a list of deleted samples, watched before and after their renames, and commits around them.
    assert step > 8
