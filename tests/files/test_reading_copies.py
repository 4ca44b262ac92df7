"""Stores of samples over copies: the bytes are those of local files while copies are damaged, removed and fetched again."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastpath import SampleStore, TrainingSet, TrainingSetWriter
from fastpath.format.blocks import block_digests
from fastpath.format.deletions import read_deleted, write_deleted
from fastpath.format.index_file import Extents, IndexedFile
from modyn_dagster.errors import CorruptFile
from modyn_dagster.ingestion.batches.batch_files import write_index
from modyn_dagster.keys import keys_of
from modyn_dagster.storage import atomic_file, atomic_write

Node = Callable[..., Path]
N_BATCHES, N, WIDTH = 12, 500, 16


def content(ordinal: int) -> np.ndarray:
    return np.random.default_rng(ordinal).integers(0, 256, (N, WIDTH), dtype=np.uint8)


def fill(home: Path) -> dict[int, str]:
    """Write a shard and an index per batch; returns the checksums of the indexes."""
    checksums = {}
    for ordinal in range(N_BATCHES):
        rows = content(ordinal)
        with atomic_write(home / f"shards/rows/{ordinal}.bin") as out:
            out.write(rows.data)
        file = IndexedFile(None, rows.nbytes, out.checksum, block_digests(rows.reshape(-1)).tobytes())
        extents = Extents(np.zeros(1, np.int32), *(np.array([value], np.int64) for value in (0, WIDTH, 0, WIDTH)))
        times = np.full(N, np.datetime64("2024-01-01", "us"))
        path = home / f"batches/rows/{ordinal}.arrow"
        checksums[ordinal] = write_index(path, times, np.arange(N), None, extents, [file])
    return checksums


def store_at(home: Path, checksums: Mapping[int, str], **options: Any) -> SampleStore:
    indexes = {ordinal: home / f"batches/rows/{ordinal}.arrow" for ordinal in checksums}
    return SampleStore.open(indexes, dataset="rows", home=home, checksums=checksums, deleted={}, width=WIDTH, **options)


KEYS = np.concatenate([keys_of(ordinal, np.arange(N)) for ordinal in range(N_BATCHES)])
ROWS = np.concatenate([content(ordinal) for ordinal in range(N_BATCHES)])


def assert_reads(store: SampleStore, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(KEYS))
    out = np.empty((len(KEYS), WIDTH), np.uint8)
    store.read_into(KEYS[order], out)
    assert np.array_equal(out, ROWS[order])


@pytest.mark.parametrize("strict", [False, True])
def test_copies_that_are_removed_or_damaged_under_an_open_store_are_fetched_again(node: Node, strict: bool) -> None:
    checksums, bob = fill(node("ann")), node("bob")
    with store_at(bob, checksums, strict=strict) as store:
        assert_reads(store, 0)
        for path in sorted(bob.rglob("*.*"))[::3]:
            path.unlink()
        assert_reads(store, 1)
        for path in sorted(bob.rglob("*.*"))[::4]:
            path.write_bytes(path.read_bytes()[:-1])
        assert_reads(store, 2)
    for path in sorted(bob.rglob("*.bin"))[::2]:
        path.write_bytes(path.read_bytes()[::-1])
    with store_at(bob, checksums, strict=strict) as store:
        assert_reads(store, 3)


def test_readers_at_the_same_time_through_a_cache_that_holds_nothing_read_what_was_written(node: Node) -> None:
    checksums, bob = fill(node("ann")), node("bob", limit=1)
    failures: list[BaseException] = []

    def read(seed: int) -> None:
        try:
            for turn in range(3):
                with store_at(bob, checksums) as store:
                    assert_reads(store, 10 * seed + turn)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_mapped_shard_is_no_longer_in_use_once_its_store_is_closed(node: Node) -> None:
    checksums, bob = fill(node("ann")), node("bob", limit=1)
    store = store_at(bob, checksums)
    assert_reads(store, 0)
    assert len(list(bob.rglob("*.bin"))) == N_BATCHES
    store.close()
    del store
    with atomic_write(bob / "other") as out:
        out.write(b"more")
    assert list(bob.rglob("*.bin")) == []


def test_a_shard_that_is_damaged_in_the_store_is_corrupt_for_the_key_that_is_read(node: Node, tmp_path: Path) -> None:
    checksums, bob = fill(node("ann")), node("bob")
    shard = tmp_path / "store/shards/rows/3.bin"
    shard.write_bytes(shard.read_bytes()[::-1])
    with store_at(bob, checksums) as store, pytest.raises(CorruptFile, match=r"rows.*store/shards/rows/3\.bin"):
        store.read_blobs(KEYS[3 * N : 3 * N + 1])


def test_a_training_set_whose_copy_is_damaged_in_a_partition_is_fetched_again(node: Node) -> None:
    ann, bob = node("ann"), node("bob")
    with atomic_file(ann / "training_sets/1.arrow") as file, TrainingSetWriter(file) as writer:
        for start in range(0, 300, 100):
            writer.write(np.arange(start, start + 100, dtype=np.uint64), np.ones(100, np.float32))
    path = bob / "training_sets/1.arrow"
    keys = TrainingSet.open(path, writer.checksum).keys()
    damaged = bytearray(path.read_bytes())
    at = damaged.find(keys[150:151].tobytes())
    damaged[at] ^= 1
    path.write_bytes(damaged)
    assert np.array_equal(TrainingSet.open(path, writer.checksum).keys(), keys)


def test_a_list_of_deleted_samples_is_read_from_a_copy(node: Node) -> None:
    ann, bob = node("ann"), node("bob")
    with atomic_write(ann / "batches/rows/0.1.deleted") as out:
        write_deleted(out, np.array([2, 5], np.uint32))
    path = bob / "batches/rows/0.1.deleted"
    assert read_deleted(path, out.checksum).tolist() == [2, 5]
    path.write_bytes(b"")
    assert read_deleted(path, out.checksum).tolist() == [2, 5]
