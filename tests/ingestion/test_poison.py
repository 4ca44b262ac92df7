"""Any bytes under any name end as an ingested batch or as a failed one with its reason, and the next goes on."""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from modyn_dagster.catalog.database.failures import TRACEBACK
from modyn_dagster.errors import DataError, UnexpectedFault
from modyn_dagster.ingestion.formats.csv import Csv
from modyn_dagster.spec.dataset import DatasetSpec
from tests.ingestion.poison import FORMATS, POISON, SOUND
from tests.ingestion.world import World, dataset_spec

CSV = b"time,x,label\n2020-01-01,1,0\n"


def imported(world: World, spec: DatasetSpec) -> None:
    world.run_import(spec)


def imported_by_count(world: World, spec: DatasetSpec) -> None:
    world.run_import(spec, "count:1")


def live(world: World, spec: DatasetSpec) -> None:
    """As the sensor and the asset do: two looks, then a run per batch."""
    seen = world.look(spec, world.look(spec))
    world.look(spec, seen)
    for batch in world.batches(spec):
        with suppress(DataError):
            world.ingest(spec, batch.partition_key)
    # Failed batches are looked at again with every tick.
    world.look(spec, seen)


WAYS: list[Callable[[World, DatasetSpec], None]] = [imported, imported_by_count, live]


def write(world: World, kind: str, name: str, content: bytes) -> None:
    ending, _ = SOUND[kind]
    path = world.root / f"{name}.{ending}"
    path.write_bytes(content)
    os.utime(path, (1e9, 1e9))
    if kind == "manifest":
        (world.root / f"{path.name}_READY").touch()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("kind", POISON)
def test_what_once_held_all_batches_back_fails_alone_and_says_why(world: World, kind: str, way: Any) -> None:
    spec = dataset_spec(**FORMATS[kind])
    if kind == "manifest":
        world.write("rows.csv", CSV)
    # The sound file comes first, so that it decides the columns, and once more at the end.
    write(world, kind, "a", SOUND[kind][1])
    for name, (content, _) in POISON[kind].items():
        write(world, kind, f"b {name}", content)
    if kind != "manifest":
        write(world, kind, "z", SOUND[kind][1])
    way(world, spec)
    batches = world.batches(spec)
    assert {batch.state for batch in batches} == {"ingested", "failed"}
    failed = {batch.source["paths"][0]: batch for batch in batches if batch.state == "failed"}
    reasons = {f"b {name}.{SOUND[kind][0]}": reason for name, (_, reason) in POISON[kind].items()}
    unclear = {path: error for path, reason in reasons.items() if reason not in (error := failed.pop(path).error or "")}
    assert (unclear, failed) == ({}, {})
    assert not any(TRACEBACK in batch.source for batch in batches)


NAMES = {
    b"day_\xff.csv": "failed",
    b"\xfe\xff/day.csv": "failed",
    b"\xc3\xa9t\xc3\xa9.csv": "ingested",
    b"a\nb\tc.csv": "ingested",
    b"a,b|c...d.csv": "ingested",
    b"'; drop table batch; --.csv": "ingested",
    b"-rf.csv": "ingested",
    b"%s %(x)s {y}.csv": "ingested",
    b" .csv": "ingested",
    b"9" * 250 + b".csv": "ingested",
    b"\\xff.csv": "ingested",
    b"\xf0\x9f\x98\x80.csv": "ingested",
    b"/".join([b"d" * 200] * 12) + b"/deep.csv": "ingested",
}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_any_name_is_ingested_or_fails_with_the_reason(world: World, way: Any) -> None:
    spec = dataset_spec(batches={"kind": "file", "pattern": "**/*.csv"})
    for name in NAMES:
        world.write(os.fsdecode(name), CSV, mtime=1e9)
    way(world, spec)
    found = [(batch.source["paths"][0], batch.state) for batch in world.batches(spec)]
    ingested = {os.fsdecode(name) for name, state in NAMES.items() if state == "ingested"}
    if way is not imported_by_count:
        assert {path for path, state in found if state == "ingested"} == ingested
    failed = {path for path, state in found if state == "failed"}
    assert failed == {r".//day_\xff.csv", r".//\xfe\xff/day.csv"}
    assert {state for _, state in found} == {"ingested", "failed"}
    for batch in world.batches(spec):
        assert batch.error is None or "is not UTF-8; rename it" in batch.error
        assert len(batch.partition_key.encode()) <= 500


def test_a_file_in_a_directory_whose_name_is_no_text_fails_the_directory(world: World) -> None:
    spec = dataset_spec(batches={"kind": "directory"})
    for folder in (b"a", b"b", b"c\xff"):
        for name in (b"1.csv", b"_READY", *([b"2\xff.csv"] if folder == b"b" else [])):
            world.write(os.fsdecode(folder + b"/" + name), CSV)
    world.run_import(spec)
    batches = {batch.partition_key: batch for batch in world.batches(spec)}
    assert {key: batch.state for key, batch in batches.items()} == {"a": "ingested", "b": "failed", r"c\xff": "failed"}
    assert str(batches["b"].error).startswith(r".//b/2\xff.csv: the name")
    assert str(batches[r"c\xff"].error).startswith(r".//c\xff: the name")


class Surprise(Exception):
    """An error of no tree."""


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize(
    "error", [Surprise("a\0b\ud800" * 5_000), StopIteration(), MemoryError(), OSError("no number")], ids=repr
)
def test_an_exception_that_nobody_foresaw_fails_its_batch_and_keeps_its_traceback(
    world: World, monkeypatch: pytest.MonkeyPatch, way: Any, error: Exception
) -> None:
    spec = dataset_spec()
    for name in "abc":
        write(world, "csv", name, CSV)
    sound = Csv.open

    def broken(self: Csv, file: Any) -> Any:
        if file.path == "b.csv":
            raise error
        return sound(self, file)

    monkeypatch.setattr(Csv, "open", broken)
    way(world, spec)
    batches = {batch.source["paths"][0]: batch for batch in world.batches(spec)}
    assert {path: batch.state for path, batch in batches.items()} == {"a.csv": "ingested", "b.csv": "failed", "c.csv": "ingested"}
    failed = batches["b.csv"]
    assert f"b.csv: met an error that modyn-dagster does not foresee ({type(error).__name__}" in str(failed.error)
    assert "in broken\n    raise error" in failed.source[TRACEBACK]
    assert len(failed.source[TRACEBACK]) < 200_000


def test_a_fault_while_samples_are_stored_fails_the_batch_and_leaves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = dataset_spec()
    write(world, "csv", "a", CSV)
    write(world, "csv", "b", b"time,x,label\n2020-01-01,1,\xe2\x98\x83\n")

    def surprised(*_: Any) -> Any:
        raise Surprise

    with monkeypatch.context() as patch:
        patch.setattr("modyn_dagster.ingestion.batches.commit.mark_ingested", surprised)
        with pytest.raises(UnexpectedFault, match=r"a\.csv: met an error .* \(Surprise\)"):
            world.register_all(spec)
            world.ingest(spec, "a")
    assert world.rows(spec) == []
    # Delivered again, for the program was at fault and not the file.
    assert world.states(spec) == {"a": "failed", "b": "open"}


def test_what_may_pass_leaves_the_batch_open(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = dataset_spec()
    write(world, "csv", "a", CSV)
    world.register_all(spec)

    def away(*_: Any) -> Any:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("modyn_dagster.ingestion.sources.local.LocalSource.load", away)
        with pytest.raises(OSError, match="Input/output error"):
            world.ingest(spec, "a")
    assert world.states(spec) == {"a": "open"}
    assert world.ingest(spec, "a").n_samples == 1
