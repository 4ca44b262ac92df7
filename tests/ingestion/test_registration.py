import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.datasets import sample
from modyn_dagster.errors import DataError, UnknownName
from modyn_dagster.ingestion.registration import Registered, retry
from modyn_dagster.ingestion.sources import local
from modyn_dagster.keys import key_of
from modyn_dagster.spec.dataset import DatasetSpec
from tests.ingestion.world import World, dataset_spec

SPEC = dataset_spec()
GOOD = "time,x,label\n2020-01-01,1,0\n2020-01-02,2,1\n"
BAD = "time,x,label\n2020-01-01,1,0\n2020-01-02,2,\n"


def looks(world: World, times: int, before: Registered[BatchRow] | None = None) -> list[Registered[BatchRow]]:
    """Look several times; what is registered is ingested as the sensor's runs would."""
    found = []
    for _ in range(times):
        before = world.look(SPEC, before)
        for batch in before.registered:
            ingest(world, batch.partition_key)
        found.append(before)
    return found


def ingest(world: World, key: str) -> None:
    with suppress(DataError):
        world.ingest(SPEC, key)


def registered(found: list[Registered[BatchRow]]) -> list[list[str]]:
    return [[batch.partition_key for batch in look.registered] for look in found]


def test_what_is_ready_is_registered_once_in_natural_order(world: World) -> None:
    for name in ("b", "a_10", "a_2"):
        world.write(f"{name}.csv", GOOD)
    found = looks(world, 3)
    assert registered(found) == [[], ["a_2", "a_10", "b"], []]
    assert [look.waiting for look in found] == [["a_2.csv", "a_10.csv", "b.csv"], [], []]


def test_a_repaired_file_is_registered_again_without_being_asked(world: World) -> None:
    world.write("a.csv", BAD)
    world.write("b.csv", GOOD)
    *_, last = looks(world, 3)
    assert world.states(SPEC) == {"a": "failed", "b": "ingested"}
    world.write("a.csv", GOOD)
    found = looks(world, 3, last)
    # One look sees that it changed, the next one that it came to rest.
    assert registered(found) == [[], ["a~2"], []]
    assert [look.waiting for look in found] == [["a.csv"], [], []]
    assert world.states(SPEC) == {"a": "failed", "b": "ingested", "a~2": "ingested"}
    assert [key >> 32 for key in world.keys(SPEC).tolist()] == [1, 1, 2, 2]


def test_a_repair_that_fails_again_waits_for_the_next_change(world: World) -> None:
    world.write("a.csv", BAD)
    *_, last = looks(world, 2)
    world.write("a.csv", BAD + "x")
    *_, last = looks(world, 4, last)
    assert world.states(SPEC) == {"a": "failed", "a~2": "failed"}
    world.write("a.csv", GOOD)
    looks(world, 2, last)
    assert world.states(SPEC) == {"a": "failed", "a~2": "failed", "a~3": "ingested"}


def test_a_file_that_is_touched_or_comes_back_is_tried_again(world: World) -> None:
    path = world.write("a.csv", BAD)
    before = looks(world, 2)[-1]
    path.unlink()
    assert registered(looks(world, 2, before)) == [[], ["a~2"]]
    assert "does not exist" in str(world.batches(SPEC)[1].error)
    world.write("a.csv", BAD)
    assert registered(looks(world, 2)) == [[], ["a~3"]]
    os.utime(path, (5, 5))
    assert registered(looks(world, 2)) == [[], ["a~4"]]


def test_retry_registers_what_changed_or_what_it_is_told(world: World) -> None:
    for name in "abc":
        world.write(f"{name}.csv", BAD)
    world.run_import(SPEC)

    def again(key: str | None = None) -> list[str]:
        return [batch.partition_key for batch in retry(world.engine, SPEC, str(world.root), key)]

    assert again() == []
    world.write("b.csv", GOOD)
    assert again() == ["b~2"]
    assert again() == []
    assert again("a") == ["a~2"]
    for key, known in (("a", "c"), ("b~2", "c")):
        with pytest.raises(UnknownName, match=f"no failed batch '{key}'; known: {known}"):
            again(key)
    with pytest.raises(UnknownName, match="no batch 'x'"):
        again("x")


def cell(text: str) -> str:
    return f"time,x,label\n2020-01-01,1,0\n{text}\n"


BAD_FILES: dict[str, tuple[str | bytes, str]] = {
    "ragged row": (cell("2020-01-01,1"), "bad.csv, row 2: the row has 2 fields, the header has 3"),
    "bad number": (cell("2020-01-01,1x,0"), "bad.csv, row 2, column 'x': '1x' is not int64"),
    "bad quote": (cell('2020-01-01,"1"x,0'), "bad.csv, row 2, column 'x': bad quote"),
    "open quote": (cell('2020-01-01,"1,0'), "bad.csv, row 2, column 'x': bad quote"),
    "missing label": (cell("2020-01-01,1,"), "bad.csv, row 2, column 'label': the value is missing"),
    "unknown class": (cell("2020-01-01,1,2"), "bad.csv, row 2, column 'label': the class 2 is not in 0 .. 1"),
    "bad timestamp": (
        cell("01/02/2020,1,0"),
        "bad.csv, row 2, column 'time': the timestamp '01/02/2020' does not match ISO 8601",
    ),
    "not UTF-8": (cell("2020-01-01,1,0").encode() + b"2020-01-01,\xff,0\n", "bad.csv, row 3, column 'x': byte 0xff is not UTF-8"),
    "empty": ("", "bad.csv: the file is empty"),
    "other columns": ("time,z,label\n2020-01-01,1,0\n", "expected time, x, label, found time, z, label"),
    "other dtypes": (cell("2020-01-01,1.5,0"), "expected x int64, found x float64"),
}


def test_every_bad_file_fails_with_its_place_leaves_nothing_and_holds_nobody_back(world: World, tmp_path: Path) -> None:
    spec = dataset_spec(label={"n_classes": 2, "from": {"source": "column", "column": "label"}})
    world.write("0.csv", GOOD)
    world.run_import(spec)
    (tmp_path / "secret.csv").write_text(GOOD)
    leaving = "lies outside the dataset's root, or is a symlink that leaves it"
    links = {
        tmp_path / "secret.csv": f"bad.csv: {leaving}",
        world.root / "nowhere": "bad.csv: does not exist",
        Path("bad.csv"): "bad.csv: is a loop of symlinks",
    }
    for number, (content, message) in enumerate(BAD_FILES.values()):
        check_failure(world, spec, world.write(f"{number}_bad.csv", content), message)
    for number, (target, message) in enumerate(links.items()):
        path = world.root / f"link{number}_bad.csv"
        path.symlink_to(target if target.is_absolute() else path)
        check_failure(world, spec, path, message)
    os.mkfifo(world.root / "pipe_bad.csv")
    check_failure(world, spec, world.root / "pipe_bad.csv", "bad.csv: is not a regular file")


def check_failure(world: World, spec: DatasetSpec, path: Path, message: str) -> None:
    """The file fails, the next one goes on, and the repaired one is ingested as a later batch."""
    world.write(f"{path.stem}_after.csv", GOOD)
    summary = world.run_import(spec)
    [(key, error)] = summary.failed
    assert message.replace("bad.csv", path.name) in str(error)
    assert [result.n_samples for result in summary.ingested] == [2], path
    failed = next(batch for batch in world.batches(spec) if batch.partition_key == key)
    assert (failed.state, failed.error) == ("failed", str(error))
    with world.engine.connect() as conn:
        here = sample.c.key.between(key_of(failed.ordinal, 0), key_of(failed.ordinal + 1, 0) - 1)
        assert conn.execute(sa.select(sa.func.count()).select_from(sample).where(here)).scalar_one() == 0
    assert not (world.home / f"batches/d/{failed.ordinal}.arrow").exists()
    path.unlink()
    path.write_text(GOOD)
    [again] = retry(world.engine, spec, str(world.root))
    assert again.partition_key == f"{key}~2"
    assert world.ingest(spec, again.partition_key).n_samples == 2


def test_a_directory_in_place_of_a_file_fails_the_batch(world: World) -> None:
    path = world.write("a.csv", GOOD)
    world.register_all(SPEC)
    path.unlink()
    path.mkdir()
    with pytest.raises(DataError, match=r"a\.csv: is a directory, expected a file"):
        world.ingest(SPEC, "a")
    assert world.states(SPEC) == {"a": "failed"}


def test_a_trouble_that_may_pass_keeps_the_batch_open(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("a.csv", GOOD)
    world.register_all(SPEC)

    def failing(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(local, "FileIO", failing)
        with pytest.raises(OSError, match="Input/output error"):
            world.ingest(SPEC, "a")
    assert world.states(SPEC) == {"a": "open"}
    assert world.ingest(SPEC, "a").n_samples == 2
