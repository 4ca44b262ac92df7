"""Strict stores: bytes that changed while size and time of change stayed are an error that names file and samples."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from fastpath import CorruptFile
from fastpath.format.blocks import BLOCK_BYTES, BlockHasher, block_digests
from fastpath.format.index import BatchIndex
from tests.fastpath.made_store import MadeBatch, MadeStore, PlacedSample, batches

ROW = 1000


def changed(path: Path, position: int) -> None:
    """Change one byte; size and time of change stay."""
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def store_of(home: Path, *, shard: int = -1, with_blocks: bool = True, n: int = 300) -> MadeStore:
    rng = np.random.default_rng(0)
    samples = [PlacedSample(0, 0, rng.bytes(ROW)) for _ in range(n)]
    return MadeStore(home, [MadeBatch(3, samples, shard=shard)], with_blocks=with_blocks)


@given(st.lists(st.integers(0, 3 * BLOCK_BYTES), max_size=6), st.integers(0, 2**32))
def test_digests_do_not_depend_on_the_parts_a_file_arrives_in(sizes: list[int], seed: int) -> None:
    content = np.random.default_rng(seed).bytes(sum(sizes))
    hasher, at = BlockHasher(), 0
    for size in sizes:
        hasher.update(content[at : at + size])
        at += size
    expected = [xxhash.xxh3_64_intdigest(content[i : i + BLOCK_BYTES]) for i in range(0, len(content), BLOCK_BYTES)]
    assert hasher.digests().tolist() == expected
    assert block_digests(np.frombuffer(content, np.uint8)).tolist() == expected


@pytest.mark.parametrize("resident", [False, True])
def test_changed_bytes_name_the_file_and_the_samples_and_the_default_reads_them(tmp_path: Path, resident: bool) -> None:
    made = store_of(tmp_path)
    path = made.files[3, 0]
    changed(path, 2 * BLOCK_BYTES + 5)
    with made.open(resident=resident) as default:
        assert len(default.read_blobs(made.keys)) == len(made.keys)
    first, last = 2 * BLOCK_BYTES // ROW, (3 * BLOCK_BYTES - 1) // ROW
    with made.open(strict=True, resident=resident) as store, pytest.raises(CorruptFile) as caught:
        store.read_blobs(made.keys[:1])
    assert caught.value.path == str(path)
    assert f"samples {first} to {last} of batch 3; restore the file from a backup, or replace the batch" in str(caught.value)
    assert f"bytes {2 * BLOCK_BYTES} to {3 * BLOCK_BYTES} as they were ingested" in str(caught.value)


def test_an_older_index_is_read_as_before_and_verified_by_whole_files(tmp_path: Path) -> None:
    made = store_of(tmp_path, with_blocks=False)
    index = BatchIndex.open(made.indexes[3])
    assert index.block_digests() is None
    with made.open() as default, made.open(strict=True) as strict:
        np.testing.assert_array_equal(default.read_blobs(made.keys).buffer, strict.read_blobs(made.keys).buffer)
    changed(made.files[3, 0], 7)
    with made.open(strict=True) as store, pytest.raises(CorruptFile, match=r"expected checksum .*restore the file"):
        store.read_blobs(made.keys[:1])


def test_a_file_is_compared_once_by_each_store(tmp_path: Path) -> None:
    made = store_of(tmp_path)
    with made.open(strict=True) as store:
        store.read_blobs(made.keys)
        changed(made.files[3, 0], 7)
        # Mapped and compared before: its bytes are the system's affair until the store is opened again.
        store.close()
        store.read_blobs(made.keys)
    with made.open(strict=True) as store, pytest.raises(CorruptFile):
        store.read_blobs(made.keys)
    with pickle.loads(pickle.dumps(made.open(strict=True))) as again, pytest.raises(CorruptFile):  # noqa: S301 - its own
        again.read_blobs(made.keys)


@given(batches())
def test_a_strict_store_reads_the_same_bytes(tmp_path_factory: pytest.TempPathFactory, made: list[MadeBatch]) -> None:
    store = MadeStore(tmp_path_factory.mktemp("strict"), made)
    with store.open() as default, store.open(strict=True) as strict:
        np.testing.assert_array_equal(default.read_blobs(store.keys).buffer, strict.read_blobs(store.keys).buffer)


@given(batches(), st.data())
def test_any_changed_byte_of_a_read_file_is_found(
    tmp_path_factory: pytest.TempPathFactory, made: list[MadeBatch], data: st.DataObject
) -> None:
    store = MadeStore(tmp_path_factory.mktemp("strict"), made)
    filled = [file for file in sorted(store.files) if store.files[file].stat().st_size]
    if not filled:
        return
    ordinal, number = data.draw(st.sampled_from(filled))
    path = store.files[ordinal, number]
    changed(path, data.draw(st.integers(0, path.stat().st_size - 1)))
    batch = next(batch for batch in made if batch.ordinal == ordinal)
    inside = [i for i, sample in enumerate(batch.samples) if sample.file == number and sample.content]
    with store.open(strict=True) as strict:
        for position in inside[:1]:
            with pytest.raises(CorruptFile):
                strict.read_blobs(np.array([ordinal << 32 | position], np.uint64))


def test_digests_that_do_not_fit_their_files_are_damage(tmp_path: Path) -> None:
    made = store_of(tmp_path)
    path = made.indexes[3]
    path.write_bytes(path.read_bytes()[:-80])
    with pytest.raises(CorruptFile, match="digests of blocks"):
        BatchIndex.open(path).block_digests()
