import csv
import io
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastpath import FixedRows
from modyn_dagster.data.reader import SampleReader
from modyn_dagster.errors import CorruptFile, StorageError, UnknownKey
from modyn_dagster.keys import KeyArray, key_of
from modyn_dagster.spec.dataset import DatasetSpec
from tests.examples import examples
from tests.ingestion.world import World, dataset_spec

SPEC = dataset_spec(label={"from": {"source": "column", "column": "label"}})
TEXT = st.text(alphabet='ab",\r\n é', max_size=5)
FILES = st.lists(
    st.lists(st.tuples(st.integers(0, 5), st.integers(-9, 9), TEXT, st.integers(0, 3)), min_size=1, max_size=6),
    min_size=1,
    max_size=4,
)


def csv_bytes(rows: list[tuple[int, int, str, int]], newline: str) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=newline, quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(["time", "x", "s", "label"])
    writer.writerows([f"2020-01-{1 + time:02d}", x, f"s{text}", label] for time, x, text, label in rows)
    return out.getvalue().encode()


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=FILES, newline=st.sampled_from(["\n", "\r\n"]), data=st.data())
def test_samples_are_those_a_plain_parser_finds_in_any_order_of_keys(
    world: World, files: list[list[tuple[int, int, str, int]]], newline: str, data: st.DataObject
) -> None:
    name = f"d{len(list(world.root.iterdir()))}"
    spec = dataset_spec(name=name)
    root = world.root / name
    for i, rows in enumerate(files):
        world.write(f"{name}/{i}.csv", csv_bytes(rows, newline))
    world.run_import(spec, root=str(root))
    oracle: dict[int, tuple[int, int, str, int]] = {}
    for ordinal, rows in enumerate(files):
        ordered = sorted(rows, key=lambda row: row[0])
        oracle |= {key_of(ordinal, position): row for position, row in enumerate(ordered)}
    keys = data.draw(st.lists(st.sampled_from(sorted(oracle)), max_size=20))
    found = world.reader(spec, str(root)).read(np.array(keys, dtype=np.uint64))
    assert found.keys.tolist() == keys
    assert found.times.tolist() == [np.datetime64(f"2020-01-{1 + oracle[key][0]:02d}", "us").item() for key in keys]
    assert found.columns["x"].tolist() == [oracle[key][1] for key in keys]
    assert found.columns["s"].tolist() == [f"s{oracle[key][2]}" for key in keys]
    assert found.labels is not None
    assert found.labels.tolist() == [oracle[key][3] for key in keys]
    blobs = world.reader(spec, str(root)).read_blobs(np.array(keys, dtype=np.uint64))
    assert [next(csv.reader([blob.decode()]))[2] for blob in blobs] == [f"s{oracle[key][2]}" for key in keys]


@pytest.fixture
def ingested(world: World) -> World:
    for day in (1, 2):
        world.write(f"{day}.csv", "time,x,label\n" + "".join(f"2020-01-0{day},{i},{i % 2}\n" for i in range(10)))
    world.run_import(SPEC)
    return world


def keys(*wanted: int) -> KeyArray:
    return np.array(wanted, dtype=np.uint64)


def test_no_keys_give_no_samples(ingested: World) -> None:
    found = ingested.reader(SPEC).read(keys())
    assert len(found) == 0
    assert [found.columns[name].dtype.kind for name in ("x", "time")] == ["i", "O"]
    assert (found.labels is not None, found.targets, found.blobs) == (True, None, None)


@pytest.mark.parametrize("key", [key_of(0, 10), key_of(2, 0), key_of(1, 2**32 - 1), 2**63 - 1])
def test_an_unknown_key_is_named(ingested: World, key: int) -> None:
    with pytest.raises(UnknownKey, match=f"d: no sample with key {key}") as caught:
        ingested.reader(SPEC).read(keys(0, key, key_of(1, 3)))
    assert caught.value.key == key


def rewrite(path: Path, content: bytes, *, mtime_ns: int | None = None) -> None:
    before = path.stat().st_mtime_ns
    path.write_bytes(content)
    os.utime(path, ns=(0, mtime_ns if mtime_ns is not None else before + 1))


def test_a_file_changed_after_ingestion_is_refused_by_a_new_reader_and_an_old_one(ingested: World) -> None:
    reader, path = ingested.reader(SPEC), ingested.root / "1.csv"
    before, modified = path.read_bytes(), path.stat().st_mtime_ns
    reader.read(keys(0))
    changed = before.replace(b"9,1\n", b"8,1\n")
    for content in (before[:-1], before + b"\n", changed):
        rewrite(path, content)
        for each in (reader, ingested.reader(SPEC)):
            with pytest.raises(CorruptFile, match=r"1\.csv: expected .*as when it was ingested"):
                each.read(keys(0))
    rewrite(path, before)
    assert reader.read(keys(9)).columns["x"].tolist() == [9]
    rewrite(path, before, mtime_ns=modified)
    assert ingested.reader(SPEC).read(keys(9)).columns["x"].tolist() == [9]


def test_a_file_that_vanished_or_leaves_the_root_is_refused(ingested: World, tmp_path: Path) -> None:
    path = ingested.root / "1.csv"
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(CorruptFile, match=r"1\.csv: expected a file of \d+ bytes, found No such file"):
        ingested.reader(SPEC).read(keys(0))
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CorruptFile, match=r"1\.csv: expected a file below the dataset's root"):
        ingested.reader(SPEC).read(keys(0))
    assert ingested.reader(SPEC).read(keys(key_of(1, 3))).columns["x"].tolist() == [3]


def test_a_reader_without_mtimes_compares_checksums(ingested: World) -> None:
    def reader() -> SampleReader:
        indexes = {batch.ordinal: ingested.home / str(batch.index_path) for batch in ingested.batches(SPEC)}
        columns = ingested.dataset(SPEC).columns
        return SampleReader(SPEC, columns, root=str(ingested.root), home=ingested.home, indexes=indexes)

    path = ingested.root / "1.csv"
    before = path.stat().st_mtime_ns
    assert reader().read(keys(9)).columns["x"].tolist() == [9]
    rewrite(path, path.read_bytes().replace(b"9,1\n", b"8,1\n"), mtime_ns=before)
    with pytest.raises(CorruptFile, match="expected checksum"):
        reader().read(keys(9))


def test_a_root_that_became_remote_cannot_be_read_in_place(ingested: World) -> None:
    with pytest.raises(StorageError, match="files that are read in place lie in a local folder"):
        ingested.reader(SPEC, "memory://data").read(keys(0))


def test_a_root_may_move(ingested: World, tmp_path: Path) -> None:
    moved = ingested.root.rename(tmp_path / "moved")
    moved_spec = DatasetSpec.model_validate(SPEC.model_dump(by_alias=True) | {"root": "moved"})
    assert ingested.reader(moved_spec, str(moved)).read(keys(4)).columns["x"].tolist() == [4]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_bytes_that_the_store_gives_are_decoded_to_what_read_gives(world: World, newline: str) -> None:
    # Rows of one length come without separators as an array, others as blobs.
    world.write("1.csv", newline.join(["time,x,label", *(f"2020-01-01,{i},{i % 2}" for i in range(9)), ""]))
    world.write("2.csv", newline.join(["time,x,label", *(f"2020-01-02,{i},{i % 2}" for i in range(95, 105)), ""]))
    world.run_import(SPEC)
    reader = world.reader(SPEC)
    for wanted in (keys(3, 1, 3), keys(key_of(1, 9), 0, key_of(1, 2))):
        for raw in (reader.store.read(wanted), reader.store.read_blobs(wanted)):
            found, expected = reader.decode(wanted, raw), reader.read(wanted)
            assert found.columns["x"].tolist() == expected.columns["x"].tolist()
            assert found.times.tolist() == expected.times.tolist()
            assert found.labels is not None
            assert expected.labels is not None
            assert found.labels.tolist() == expected.labels.tolist()


def test_rows_of_one_length_are_decoded_with_their_separators(world: World) -> None:
    world.write("1.csv", "time,x,label\n" + "".join(f"2020-01-01,{i},1\n" for i in range(9)))
    world.run_import(SPEC)
    reader = world.reader(SPEC)
    raw = reader.store.read(keys(3, 1))
    assert isinstance(raw, FixedRows)
    assert reader.decode(keys(3, 1), raw).columns["x"].tolist() == [3, 1]


def test_errors_name_dataset_key_file_and_offset(ingested: World) -> None:
    path = ingested.root / "2.csv"
    path.unlink()
    with pytest.raises(CorruptFile, match=r"2\.csv: expected .* \(d, key 4294967299, offset \d+\)") as caught:
        ingested.reader(SPEC).read(keys(0, key_of(1, 3)))
    assert (caught.value.dataset, caught.value.key) == ("d", key_of(1, 3))
