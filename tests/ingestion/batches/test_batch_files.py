"""Shards are written before the transaction that names them, by whoever is first."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastpath.array_types import ByteArray
from modyn_dagster.errors import WriteFailed
from modyn_dagster.ingestion.batches.batch_files import staged_shard
from modyn_dagster.values.digest import checksum_of
from tests.ingestion.world import World, dataset_spec


def parts(*contents: bytes) -> list[ByteArray]:
    return [np.frombuffer(content, dtype=np.uint8) for content in contents]


def files(home: Path) -> list[str]:
    return sorted(path.name for path in home.rglob("*") if path.is_file())


def test_a_shard_has_its_name_once_it_is_published(home: Path) -> None:
    with staged_shard(home, "d", 3, parts(b"ab", b"", b"cde")) as shard:
        assert shard is not None
        assert not (home / "shards/d/3.bin").exists()
        shard.publish()
    assert (home / "shards/d/3.bin").read_bytes() == b"abcde"
    assert (shard.size, shard.checksum) == (5, checksum_of(home / "shards/d/3.bin"))
    assert files(home) == ["3.bin"]


def test_a_shard_that_is_not_published_leaves_nothing(home: Path) -> None:
    with staged_shard(home, "d", 3, parts(b"ab")):
        assert len(files(home)) == 1
    assert files(home) == []
    with staged_shard(home, "d", 3, None) as shard:
        assert shard is None


def test_what_making_the_parts_raises_is_raised_as_it_is(home: Path) -> None:
    def broken() -> Iterator[ByteArray]:
        yield from parts(b"ab")
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="the source is gone"), staged_shard(home, "d", 3, broken()):
        pass
    assert files(home) == []


def test_one_of_two_writers_publishes_and_the_other_is_told(home: Path) -> None:
    with staged_shard(home, "d", 3, parts(b"one")) as one, staged_shard(home, "d", 3, parts(b"two")) as two:
        assert one is not None
        assert two is not None
        (home / "shards/d/.3.bin.dead.tmp").write_bytes(b"left by a kill")
        one.publish()
        with pytest.raises(WriteFailed, match=r"3\.bin"):
            two.publish()
    assert files(home) == ["3.bin"]
    assert (home / "shards/d/3.bin").read_bytes() == b"one"


def test_a_folder_that_cannot_be_written_is_named(home: Path) -> None:
    (home / "shards").write_text("no folder")
    with pytest.raises(WriteFailed, match=r"shards/d/3\.bin: cannot be written"), staged_shard(home, "d", 3, parts(b"ab")):
        pass


def test_a_batch_with_a_shard_ingested_by_several_at_once_is_ingested_once(world: World) -> None:
    spec = dataset_spec(format={"kind": "parquet"})
    texts = [f"text {i}" for i in range(500)]
    table = pa.table({"time": np.arange(500).astype("datetime64[s]"), "x": texts, "label": [0] * 500})
    pq.write_table(table, world.root / "a.parquet")
    world.register_all(spec)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: world.ingest(spec, "a"), range(4)))
    assert sorted(result.already_ingested for result in results) == [False, True, True, True]
    assert files(world.home / "shards") == ["0.bin"]
    assert world.reader(spec).read(world.keys(spec)).columns["x"].tolist() == texts
