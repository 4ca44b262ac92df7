"""Keys to delete: listed, in files, or those of a source file."""

from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.errors import ConfigError, DataError, UnknownKey
from modyn_dagster.ingestion.deletion.keys import keys_of_file, keys_of_source_file
from modyn_dagster.ingestion.deletion.named import keys_of_text
from modyn_dagster.keys import key_of
from modyn_dagster.spec.dataset import DatasetSpec
from tests.ingestion.deletion.test_purge import FILES, erase, keys_of_positions
from tests.ingestion.world import World, dataset_spec

ROWS = "time,x,label\n2020-01-01,1,cat\n2020-01-02,2,dog\n2020-01-03,3,cat\n"


def of_text(world: World, spec: DatasetSpec, text: str) -> list[int]:
    with transaction(world.engine) as conn:
        return [int(key) for key in keys_of_text(conn, world.dataset(spec), text)]


def of_source(world: World, spec: DatasetSpec, path: str) -> list[int]:
    with transaction(world.engine) as conn:
        return [int(key) for key in keys_of_source_file(conn, world.home, spec, world.dataset(spec), path)]


def test_keys_and_ranges_reach_over_batches_and_repeat_at_will(world: World) -> None:
    spec = dataset_spec()
    for name in ("a.csv", "b.csv", "c.csv"):
        world.write(name, ROWS)
    world.run_import(spec)
    everything = [key_of(ordinal, position) for ordinal in range(3) for position in range(3)]
    assert of_text(world, spec, f"{everything[1]}-{everything[6]}") == everything[1:7]
    assert of_text(world, spec, f"{everything[8]}, {everything[0]} - {everything[1]},{everything[1]}") == [
        *everything[:2],
        everything[8],
    ]
    with pytest.raises(UnknownKey, match="no sample with key 3 "):
        of_text(world, spec, f"1-3,{everything[8] + 1}")


@pytest.mark.parametrize("text", ["", "1,", "one", "1-", "-1", "5-3", "1-2-3", "1;2", f"0-{2**63}", "9" * 30])
def test_other_text_is_refused(world: World, text: str) -> None:
    with pytest.raises(ConfigError, match="dataset delete: --keys: must be keys"):
        of_text(world, dataset_spec(), text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3\n1\n2\n", [3, 1, 2]),
        ("\ufeff3\r\n\r\n 1 \r\n", [3, 1]),
        ("key\n7\n", [7]),
        ('name,key\n"a, b",7\nc,8\n', [7, 8]),
    ],
)
def test_keys_stand_one_per_line_or_in_a_column(tmp_path: Path, text: str, expected: list[int]) -> None:
    path = tmp_path / "keys.txt"
    path.write_text(text, newline="")
    found = keys_of_file(path)
    assert (str(found.dtype), found.tolist()) == ("uint64", expected)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", r"must have one key per line, or a column 'key'"),
        (b"name\n7\n", r"it begins with \['name'\]"),
        (b"1,2\n", r"it begins with \['1', '2'\]"),
        (b"1\n2\nx\n", r"row 3, column 'key': must be a key, a whole number, found 'x'"),
        (b"a,key\n1,2\n3\n", r"row 3, column 'key': must be a key, a whole number, found ''"),
        (b"1\n-2\n", r"row 2, column 'key'"),
        (b"1\n99999999999999999999\n", r"row 2, column 'key'"),
        (b"1\n\xff\n", r"cannot be read"),
        (b"1\n2\0\n", r"row 2, column 'key'"),
    ],
)
def test_a_file_that_holds_something_else_is_refused_with_the_row(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "keys.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=problem):
        keys_of_file(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt: cannot be read"):
        keys_of_file(tmp_path / "none.txt")


def test_the_samples_of_a_file_that_is_read_in_place_are_found_in_every_slice_of_it(world: World) -> None:
    spec = dataset_spec()
    # Their times interleave: a.csv has the samples at even places.
    world.write("a.csv", "time,x,label\n" + "".join(f"2020-01-0{day},1,cat\n" for day in (1, 3, 5)))
    world.write("b.csv", "time,x,label\n" + "".join(f"2020-01-0{day},2,dog\n" for day in (2, 4, 6)))
    world.run_import(spec, "count:4")
    assert of_source(world, spec, "a.csv") == [key_of(0, 0), key_of(0, 2), key_of(1, 0)]
    assert of_source(world, spec, "b.csv") == [key_of(0, 1), key_of(0, 3), key_of(1, 1)]
    with pytest.raises(DataError, match=r"c\.csv: no batch of dataset d has ingested this file"):
        of_source(world, spec, "c.csv")


def test_a_packed_file_is_found_by_its_bytes(world: World) -> None:
    for folder, day, content in (("cats", 3, b"one"), ("cats", 1, b"two"), ("dogs", 2, b"same"), ("cats", 2, b"same")):
        world.write(f"day/{folder}/2020010{day}.png", content)
    world.write("day/cats/20200109.png", b"big" * 500_000)
    world.write("day/_READY", "")
    world.run_import(FILES)
    assert of_source(world, FILES, "day/cats/20200103.png") == [3]
    assert of_source(world, FILES, "day/cats/20200101.png") == [0]
    assert of_source(world, FILES, "day/cats/20200109.png") == [4]
    # Equal bytes at equal times stand in the order of their paths.
    assert of_source(world, FILES, "day/cats/20200102.png") == [1]
    assert of_source(world, FILES, "day/dogs/20200102.png") == [2]
    erase(world, FILES, keys_of_positions(0, [3]))
    with pytest.raises(DataError, match="or they were purged"):
        of_source(world, FILES, "day/cats/20200103.png")


def test_files_with_the_same_bytes_at_other_times_are_not_guessed(world: World) -> None:
    for day in (1, 2):
        world.write(f"day/cats/2020010{day}.png", b"same")
    world.write("day/_READY", "")
    world.run_import(FILES)
    with pytest.raises(DataError, match=r"2 files of its batch have the same bytes.*one of the keys 0, 1"):
        of_source(world, FILES, "day/cats/20200101.png")


def test_converted_rows_are_found_where_their_file_is_the_only_one_of_its_batch(world: World) -> None:
    table = pa.table({"time": [datetime(2020, 1, 1), datetime(2020, 1, 2)], "x": [1, 2], "label": ["a", "b"]})
    single = dataset_spec(format={"kind": "parquet"})
    pq.write_table(table, world.root / "a.parquet")
    world.run_import(single)
    assert of_source(world, single, "a.parquet") == [0, 1]
    (world.root / "a.parquet").unlink()
    folder = dataset_spec(name="folder", format={"kind": "parquet"}, batches={"kind": "directory"})
    (world.root / "day").mkdir()
    for name in ("a.parquet", "b.parquet"):
        pq.write_table(table, world.root / "day" / name)
    world.write("day/_READY", "")
    world.run_import(folder)
    with pytest.raises(DataError, match=r"day/a\.parquet: its rows were copied to one shard with those of 1 other files"):
        of_source(world, folder, "day/a.parquet")
