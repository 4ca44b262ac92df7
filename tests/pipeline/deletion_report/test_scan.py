"""The scan finds planted bytes in every kind of file, and does not take bytes of other samples for those of deleted ones."""

import gzip
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import sqlalchemy as sa
import torch
from safetensors.torch import save_file

from modyn_dagster.catalog.access.roles import DATABASES, DatabaseName
from modyn_dagster.catalog.database.databases import create_databases
from modyn_dagster.catalog.database.engine import open_engine, transaction
from modyn_dagster.catalog.database.table_contents import StoredTable
from modyn_dagster.catalog.database.urls import database_url
from modyn_dagster.catalog.removal.deletion_requests import DeletionRequestRow
from modyn_dagster.errors import CatalogError
from modyn_dagster.pipeline.operate.deletion.report.fingerprints import Fingerprints, fingerprints_path
from modyn_dagster.pipeline.operate.deletion.report.scan import Scan, scan
from modyn_dagster.pipeline.operate.deletion.report.taking import take_fingerprints
from modyn_dagster.settings import Settings
from tests.conftest import TEMPLATE, RunningServer
from tests.pipeline.deleting import delete, purge
from tests.pipeline.deletion_report.reported import GONE, finish_deletion, row_of, without_rows
from tests.pipeline.world import World, make_world
from tests.projects.tiny import DATASET, amount

ROW = row_of(int(GONE[0]))
SALT = "00112233445566778899aabbccddeeff"
FLOATS = np.array([float(part) for part in ROW.split(b",")[1:3]])


@pytest.fixture
def world(settings: Settings, tmp_path: Path) -> Iterator[World]:
    made = make_world(settings, tmp_path / "project", [amount(every=40)])
    made.deliver(range(3))
    yield made
    made.close()


def fingerprints_of(world: World, row: DeletionRequestRow) -> Fingerprints:
    return Fingerprints.read(fingerprints_path(world.settings.home, row.id, row.document["salt"]))


def searched(world: World, row: DeletionRequestRow) -> Scan:
    fingerprints = fingerprints_of(world, row)
    return scan(world.platform, world.platform.view(DATASET).row, fingerprints)


def states(result: Scan) -> dict[str, str]:
    return {finding.path: finding.state for finding in result.findings}


@pytest.mark.soak("deletions")
def test_after_a_purge_only_the_originals_outside_of_the_home_hold_the_samples(world: World) -> None:
    world.replay("by_amount")
    row = finish_deletion(world)
    result = searched(world, row)
    original = world.folder / "data" / "day_01.csv"
    [finding] = result.findings
    assert (finding.state, finding.kind, finding.path) == ("original", "originals", str(original))
    assert (finding.n_samples, finding.n_places, finding.forms) == (2, 2, ["stored"])
    assert finding.offsets == sorted(original.read_bytes().index(row_of(int(key))) for key in GONE)
    assert {"indexes", "deleted lists", "training sets", "predictions", "models", "originals"} <= set(result.n_files)
    assert "Postgres" not in result.n_files
    without_rows(original, [row_of(int(key)) for key in GONE])
    assert searched(world, row).findings == []


def write_arrow(path: Path) -> None:
    table = pa.table({"key": [1, 2], "row": [b"other", ROW]})
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


def write_model(path: Path) -> None:
    save_file({"w": torch.arange(8.0), "memory": torch.tensor(FLOATS, dtype=torch.float64)}, path)


PLANTED: dict[str, tuple[str, str, Callable[[Path], object]]] = {
    "shard": ("shards/tiny/000001.bin", "shards", lambda path: path.write_bytes(b"\0" * 99 + FLOATS.astype("<f8").tobytes())),
    "index": ("batches/tiny/000077.arrow", "indexes", lambda path: path.write_bytes(b"ARROW1" + ROW)),
    "label file": ("labels/tiny/labels_1_1.arrow", "labels", lambda path: path.write_bytes(b"ARROW1" + ROW)),
    "deleted list": ("batches/tiny/000077.1.deleted", "deleted lists", lambda path: path.write_bytes(b"\0" + ROW)),
    "selector state": (
        "training_sets/000001/000009.json",
        "selector states",
        lambda path: path.write_text(f'["{ROW.decode()}"]'),
    ),
    "training set": ("training_sets/000001/000009.arrow", "training sets", write_arrow),
    "prediction": ("predictions/000001/000001/1-2-3.arrow", "predictions", lambda path: path.write_bytes(bytes(7) + ROW)),
    "report": ("reports/tiny.html", "reports", lambda path: path.write_text(f"<td>{ROW.decode()}</td>")),
    "model": ("models/ab/abcdef.safetensors", "models", write_model),
    "description of a model": (
        "models/ab/abcdee.safetensors",
        "models",
        lambda path: save_file({"w": torch.arange(8.0)}, path, metadata={"note": f"row {ROW.decode()}"}),
    ),
    "cached weights": ("weights/ab/abcdef.safetensors", "cached weights", write_model),
    "optimizer": ("optimizers/000001/000001.pt", "optimizers", lambda path: path.write_bytes(ROW * 3)),
    "checkpoint": ("checkpoints/000001/000001", "checkpoints", lambda path: path.write_bytes(b"x" * 5_000_000 + ROW)),
    "model ahead": ("ahead/000001/000002.safetensors", "models ahead", write_model),
    "artifact of MLflow": ("mlflow/artifacts/1/abc/artifacts/table.csv", "MLflow's files", lambda path: path.write_bytes(ROW)),
    "compute log": (
        "dagster/storage/run/compute_logs/step.err",
        "Dagster's logs",
        lambda path: path.write_bytes(b"bad row: " + ROW),
    ),
    "event log": ("dagster/history/runs/abc.db", "Dagster's logs", lambda path: path.write_bytes(b"SQLite format 3\0" + ROW)),
    "log": ("logs/ui.log", "logs", lambda path: path.write_bytes(b"\n" + ROW + b"\n")),
    "spool file": ("cache/spool-1234", "copies", lambda path: path.write_bytes(FLOATS.astype("<f8").tobytes())),
    "unknown file": ("notes.txt", "other", lambda path: path.write_bytes(ROW)),
    "file of a killed writer": ("batches/tiny/.000003.arrow.tmp", "indexes", lambda path: path.write_bytes(ROW)),
}


@pytest.fixture(scope="module")
def deleted(
    postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[World, DeletionRequestRow]]:
    """A world whose originals are corrected, so that nothing holds the samples."""
    folder = tmp_path_factory.mktemp("deleted")
    settings = postgres_server.settings(folder, folder / "home", "tscan_")
    postgres_server.create_database("tscan_modyn", TEMPLATE)
    create_databases(settings)
    made = make_world(settings, folder / "project", [amount(every=40)])
    made.deliver(range(3))
    row = finish_deletion(made)
    without_rows(made.folder / "data" / "day_01.csv", [row_of(int(key)) for key in GONE])
    yield made, row
    made.close()
    for name in DATABASES:
        postgres_server.drop_database(f"tscan_{name}")


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bytes_are_found_in(name: str, deleted: tuple[World, DeletionRequestRow]) -> None:
    world, row = deleted
    relative, kind, plant = PLANTED[name]
    path = world.settings.home / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    plant(path)
    try:
        [finding] = searched(world, row).findings
    finally:
        path.unlink()
    assert (finding.state, finding.kind, finding.path) == ("found", kind, relative)
    assert finding.n_samples == 1


def test_a_column_cache_without_a_name_is_found_while_a_process_has_it_open(deleted: tuple[World, DeletionRequestRow]) -> None:
    world, row = deleted
    with tempfile.TemporaryFile(dir=world.settings.home) as file:
        file.write(b"before" + ROW)
        file.flush()
        [finding] = searched(world, row).findings
        assert (finding.state, finding.kind) == ("found", "spool files")
    assert searched(world, row).findings == []


@pytest.mark.parametrize("database", DATABASES)
def test_rows_of_tables_are_found_in_every_database_of_ours(
    deleted: tuple[World, DeletionRequestRow], database: DatabaseName
) -> None:
    world, row = deleted
    # Dagster and MLflow make their tables themselves.
    engine = open_engine(database_url(world.settings, database, "owner" if database == "modyn" else "writer"))
    with transaction(engine) as conn:
        conn.execute(sa.text("create table events (id int, event jsonb)"))
        conn.execute(
            sa.text("insert into events values (1, '{}'), (2, cast(:event as jsonb))"), {"event": f'"row {ROW.decode()}"'}
        )
    try:
        [finding] = searched(world, row).findings
    finally:
        with transaction(engine) as conn:
            conn.execute(sa.text("drop table events"))
        engine.dispose()
    assert (finding.state, finding.kind, finding.path) == ("found", "tables of Postgres", f"{database}.public.events")


def test_a_table_that_may_not_be_read_is_named(deleted: tuple[World, DeletionRequestRow]) -> None:
    world, row = deleted
    owner = open_engine(world.settings, "owner")
    with transaction(owner) as conn:
        conn.execute(sa.text("create table closed (id int)"))
        conn.execute(sa.text("revoke all on closed from public"))
        for role in conn.scalars(
            sa.text("select rolname from pg_roles where rolname !~ '^pg_' and rolname <> current_user")
        ).all():
            conn.execute(sa.text(f'revoke all on closed from "{role}"'))
    result = searched(world, row)
    with transaction(owner) as conn:
        conn.execute(sa.text("drop table closed"))
    owner.dispose()
    [(path, reason)] = result.unread
    assert (path, "permission denied" in reason) == ("modyn.public.closed", True)


def test_a_table_whose_reading_ends_for_whatever_reason_is_not_taken_for_an_empty_one() -> None:
    table = StoredTable(sa.make_url("unknown://nowhere/x"), "modyn.public.batch", 0, "public", "batch")
    with pytest.raises(CatalogError, match=r"modyn\.public\.batch: cannot be read"), table.open() as stream:
        stream.read()


def test_a_file_with_several_names_is_searched_once(deleted: tuple[World, DeletionRequestRow]) -> None:
    world, row = deleted
    folder = world.settings.home / "logs"
    folder.mkdir(exist_ok=True)
    (folder / "a.log").write_bytes(ROW)
    (folder / "b.log").hardlink_to(folder / "a.log")
    (folder / "c.log").symlink_to(folder / "a.log")
    try:
        assert len(searched(world, row).findings) == 1
    finally:
        for name in "abc":
            (folder / f"{name}.log").unlink()


def test_compressed_files_are_counted_because_they_hide_bytes(deleted: tuple[World, DeletionRequestRow]) -> None:
    world, row = deleted
    path = world.settings.home / "packed.gz"
    path.write_bytes(gzip.compress(ROW * 10))
    try:
        result = searched(world, row)
    finally:
        path.unlink()
    assert (result.findings, dict(result.encoded)) == ([], {"gzip": 1})


def test_a_source_inside_of_the_home_is_one_of_ours(settings: Settings, tmp_path: Path) -> None:
    made = make_world(settings, settings.home / "project", [amount(every=40)])
    made.deliver(range(3))
    row = finish_deletion(made)
    [finding] = searched(made, row).findings
    made.close()
    assert (finding.state, finding.kind, finding.path) == ("found", "sources", "project/data/day_01.csv")


def test_files_in_a_store_of_several_nodes_are_searched_there(settings: Settings, tmp_path: Path) -> None:
    store = tmp_path / "store"
    made = make_world(replace(settings, files=f"file://{store}"), tmp_path / "project", [amount(every=40)])
    made.deliver(range(3))
    row = finish_deletion(made)
    (store / "predictions").mkdir(exist_ok=True)
    (store / "predictions" / "left.arrow").write_bytes(bytes(99) + ROW)
    result = searched(made, row)
    made.close()
    [finding] = result.found("found")
    assert (finding.kind, finding.path) == ("predictions", f"file://{store}/predictions/left.arrow")
    assert result.n_files["indexes"] >= 3


def test_samples_that_stay_and_have_the_same_bytes_are_no_fault(world: World) -> None:
    copied = world.folder / "data" / "day_05.csv"
    copied.write_bytes(b"time,x,y,label\n" + ROW + b"\n")
    world.deliver([])
    row = finish_deletion(world)
    (world.settings.home / "table.csv").write_bytes(ROW)
    (world.settings.home / "other.csv").write_bytes(row_of(int(GONE[1])))
    found = {path: state for path, state in states(searched(world, row)).items() if "day_01" not in path}
    assert found == {"table.csv": "shared", "other.csv": "found"}


def test_without_a_purge_the_shards_hold_the_samples_still(world: World) -> None:
    row = finish_deletion(world, purging=False)
    assert {finding.state for finding in searched(world, row).findings} == {"original"}


def test_numbers_that_are_too_short_are_counted_and_not_searched(world: World) -> None:
    row = finish_deletion(world)
    fingerprints = fingerprints_of(world, row)
    # Two features are 8 bytes as float32; with the label they are 12.
    assert fingerprints.not_provable["float32"] >= len(GONE)
    assert set(fingerprints.pieces["sample"].to_pylist()) == {0, 1}


def test_taking_fingerprints_again_keeps_the_first_ones(world: World) -> None:
    view = world.platform.view(DATASET)
    path = take_fingerprints(world.platform, view.row, GONE, 7, SALT)
    before = path.read_bytes()
    purge(world, GONE)
    assert take_fingerprints(world.platform, view.row, GONE, 7, SALT).read_bytes() == before
    other = take_fingerprints(world.platform, view.row, GONE, 7, SALT[::-1])
    assert (other == path, Fingerprints.read(other).unread) == (False, {"purged before": 2})


def test_deleted_samples_are_read_and_purged_ones_are_counted(world: World) -> None:
    finish_deletion(world, GONE[:1])
    delete(world, GONE[1:])
    path = take_fingerprints(world.platform, world.platform.view(DATASET).row, GONE, 9, SALT)
    fingerprints = Fingerprints.read(path)
    assert fingerprints.unread == {"purged before": 1}
    assert set(fingerprints.pieces["sample"].to_pylist()) == {1}


@pytest.mark.soak("deletions")
def test_an_original_that_is_gone_hides_its_own_samples_alone(world: World) -> None:
    (world.folder / "data" / "day_00.csv").unlink()
    keys = np.concatenate((np.array([3], np.uint64), GONE))
    fingerprints = Fingerprints.read(take_fingerprints(world.platform, world.platform.view(DATASET).row, keys, 9, SALT))
    assert list(fingerprints.unread.values()) == [1]
    assert set(fingerprints.pieces["sample"].to_pylist()) == {1, 2}
