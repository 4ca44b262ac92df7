"""Prefetching of rows: what the probe answered is remembered for the machine, and never changes what is read."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from fastpath import Columns
from fastpath.array_types import address_of
from fastpath.kernels._columns import gather_columns
from fastpath.rows.prefetching import MANY_ROWS, prefetching_gains
from tests.fastpath.made_store import MadeBatch, MadeStore, PlacedSample

ROW = np.dtype([("label", "<u1"), ("x", "<i4", (26,)), ("y", ">f8")])
COLUMNS = Columns(ROW, {"label": "label", "x": (["x"], np.int64), "y": "y"})
N = 20_000


@pytest.fixture
def remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """File of the answer, in a folder of its own that is not there yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    prefetching_gains.cache_clear()
    yield tmp_path / "cache" / "modyn-dagster" / "prefetching.json"
    prefetching_gains.cache_clear()


@pytest.fixture
def answered(remembered: Path) -> Callable[[], bool]:
    """The answer of a new process."""

    def ask() -> bool:
        prefetching_gains.cache_clear()
        return prefetching_gains()

    return ask


def test_an_answer_is_remembered_for_the_machine_and_asked_for_no_more(remembered: Path, answered: Callable[[], bool]) -> None:
    first = answered()
    content = json.loads(remembered.read_text())
    assert content["gains"] is first
    for opposite in (not first, first):
        remembered.write_text(json.dumps(content | {"gains": opposite}))
        assert answered() is opposite
    assert [path.name for path in remembered.parent.iterdir()] == [remembered.name]


@pytest.mark.parametrize("field", ["version", "machine", "gains"])
def test_an_answer_for_another_machine_or_of_another_kind_does_not_count(
    remembered: Path, answered: Callable[[], bool], field: str
) -> None:
    answered()
    content = json.loads(remembered.read_text())
    remembered.write_text(json.dumps(content | {"gains": False, field: "another"}))
    answered()
    anew = json.loads(remembered.read_text())
    assert anew == content | {"gains": anew["gains"]}
    assert isinstance(anew["gains"], bool)


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_file_is_written_anew(remembered: Path, answered: Callable[[], bool], damage: bytes) -> None:
    remembered.parent.mkdir(parents=True)
    remembered.write_bytes(damage)
    found = answered()
    assert json.loads(remembered.read_text())["gains"] is found


def test_where_nothing_can_be_written_each_process_asks(remembered: Path, answered: Callable[[], bool]) -> None:
    remembered.parent.parent.write_text("a file in the folder's place")
    assert answered() in (True, False)


def test_a_folder_in_its_place_leaves_no_files_behind(remembered: Path, answered: Callable[[], bool]) -> None:
    remembered.mkdir(parents=True)
    assert answered() in (True, False)
    assert list(remembered.parent.iterdir()) == [remembered]


def test_rows_are_the_same_with_and_without_it() -> None:
    rng = np.random.default_rng(0)
    rows = np.frombuffer(rng.bytes(997 * ROW.itemsize), ROW).copy()
    bases, files = np.array([address_of(rows)], np.uint64), np.zeros(N, np.int32)
    offsets = rng.integers(0, 997, N) * ROW.itemsize
    found = []
    for ahead in (True, False):
        out = COLUMNS.allocate(N)
        places = COLUMNS.places(N, out)
        assert gather_columns(bases, files, offsets, *COLUMNS.span, COLUMNS.operations, places, 1, ahead) == 0
        found.append({name: values.tobytes() for name, values in out.items()})
    assert found[0] == found[1]


@pytest.mark.parametrize("gains", [True, False])
def test_a_store_reads_as_it_is_told(remembered: Path, answered: Callable[[], bool], tmp_path: Path, gains: bool) -> None:
    answered()
    content = json.loads(remembered.read_text())
    remembered.write_text(json.dumps(content | {"gains": gains}))
    records = np.zeros(101, ROW)
    records["x"] = np.arange(101)[:, None]
    keys = (np.arange(MANY_ROWS) % 101).astype(np.uint64)
    prefetching_gains.cache_clear()
    batch = MadeBatch(0, [PlacedSample(0, 0, record.tobytes()) for record in records])
    with MadeStore(tmp_path / "rows", [batch]).open(dtype=ROW) as store:
        found = store.read_columns(keys, COLUMNS)["x"]
    np.testing.assert_array_equal(found, np.repeat(keys.astype(np.int64)[:, None], 26, axis=1))
    assert prefetching_gains.cache_info().currsize == 1
