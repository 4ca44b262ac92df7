"""Every key exactly once per epoch, in an order that threads, prefetching and consumers do not change."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpath import Batch, BatchStream, Columns, SampleStore, TrainingSet, TrainingSetWriter
from fastpath.order import part_sizes
from tests.fastpath.stored import ROW, row_store, rows_of, text_of, text_store

Stored = tuple[SampleStore, np.ndarray]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    store, keys = row_store(tmp_path_factory.mktemp("rows"))
    with store:
        yield store, keys


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return text_store(tmp_path_factory.mktemp("texts"))


def keys_of(stream: BatchStream) -> list[list[int]]:
    return [batch.keys.tolist() for batch in stream]


GRID = list(product([1, 7, 64, 100, 300], [False, True], [1, 2, 5], [(0, 1), (1, 1), (1, 3), (3, 2)]))


@pytest.mark.long
@pytest.mark.parametrize(
    ("shuffle", "block_size"),
    [
        (True, 1),
        ("blocks", 50),
        *(pytest.param(*each, marks=pytest.mark.soak("laws-fastpath")) for each in ((False, 1), ("blocks", 1), ("blocks", 999))),
    ],
    ids=str,
)
@pytest.mark.parametrize("n", [0, 1, 100])
def test_every_key_comes_once_in_an_epoch_whoever_consumes_it(rows, n, shuffle, block_size):
    store, all_keys = rows
    # No two positions have the same weight.
    keys, weights = all_keys[100 : 100 + n], np.arange(n, dtype=np.float32)
    whole: dict[tuple[int, bool], list[list[int]]] = {}
    for batch_size, drop_last, consumers, (prefetch, threads) in GRID:
        shares = []
        for shard in range(consumers):
            stream = BatchStream(
                store,
                (keys, weights),
                batch_size,
                shuffle=shuffle,
                seed=5,
                drop_last=drop_last,
                prefetch=prefetch,
                threads=threads,
                shard=(shard, consumers),
                block_size=block_size,
            )
            shares.append(list(stream))
            assert len(shares[-1]) == len(stream)
            for batch in shares[-1]:
                np.testing.assert_array_equal(batch.rows.view(ROW), rows_of(batch.keys))
                np.testing.assert_array_equal(batch.keys, keys[batch.weights.astype(np.int64)])
        dealt = sorted((batch.number, shard, batch.keys.tolist()) for shard, share in enumerate(shares) for batch in share)
        assert [(number, shard) for number, shard, _ in dealt] == [(i, i % consumers) for i in range(len(dealt))]
        batches = [found for _, _, found in dealt]
        dropped = n % batch_size if drop_last and n >= batch_size else 0
        assert [len(batch) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
        found = [key for batch in batches for key in batch]
        assert len(found) == len(set(found)) == n - dropped
        assert set(found) <= set(keys.tolist())
        # Batch for batch the same for all that differ in the rest only.
        assert whole.setdefault((batch_size, drop_last), batches) == batches


@pytest.mark.parametrize(("n", "batch_size", "count"), [(100, 7, 3), (100, 64, 2), (5, 4, 4), (31, 31, 5)])
def test_parts_of_every_batch_are_the_batch(rows, n, batch_size, count):
    store, all_keys = rows
    keys, options = all_keys[:n], dict[str, Any](shuffle=True, seed=3)
    whole = keys_of(BatchStream(store, keys, batch_size, **options))
    parts = [BatchStream(store, keys, batch_size, part=(i, count), **options) for i in range(count)]
    dealt = [keys_of(part) for part in parts]
    for number, batch in enumerate(whole):
        sizes = part_sizes(len(batch), count)
        found = [share[number] for share in dealt]
        assert [key for share, size in zip(found, sizes) for key in share[:size]] == batch
        # A reader with no sample of its own reads one all the same.
        assert [len(share) for share in found] == [max(1, size) for size in sizes]
    half = iter(parts[0])
    next(half)
    resumed = BatchStream(store, keys, batch_size, part=(0, count), **options)
    resumed.load_state_dict(parts[0].state_dict())
    assert keys_of(resumed) == dealt[0][1:]


def test_without_shuffling_keys_come_as_they_are(rows):
    store, keys = rows
    assert keys_of(BatchStream(store, keys, 300, shuffle=False, threads=2)) == [
        keys[start : start + 300].tolist() for start in range(0, 1_000, 300)
    ]


def test_another_seed_or_epoch_is_another_order(rows):
    store, keys = rows
    stream = BatchStream(store, keys, 100, seed=1)
    first = keys_of(stream)
    assert keys_of(stream) == first
    stream.set_epoch(1)
    second = keys_of(stream)
    assert second != first
    assert keys_of(BatchStream(store, keys, 100, seed=1, epoch=1)) == second
    assert keys_of(BatchStream(store, keys, 100, seed=2)) not in (first, second)
    stream.set_epoch(0)
    assert keys_of(stream) == first


def test_a_training_set_may_be_a_file_or_arrays(rows, tmp_path):
    store, keys = rows
    weights = (np.arange(1_000) / 8).astype(np.float32)
    path = tmp_path / "set.arrow"
    with path.open("wb") as out, TrainingSetWriter(out) as writer:
        for start in range(0, 1_000, 130):
            writer.write(keys[start : start + 130], weights[start : start + 130])
    stored = TrainingSet.open(path, writer.checksum)

    def batches(chosen) -> list[tuple[bytes, bytes]]:
        return [(b.keys.tobytes(), b.weights.tobytes()) for b in BatchStream(store, chosen, 64, seed=1, threads=2)]

    assert batches(stored) == batches((keys, weights)) == batches(TrainingSet.of(keys, weights))
    assert {weight for batch in BatchStream(store, keys, 64) for weight in batch.weights.tolist()} == {1.0}


def test_columns_labels_and_times_belong_to_their_keys(rows):
    store, keys = rows
    columns = Columns(ROW, {"x": (("value", "code"), "float32"), "key": "key", "code": "code"})
    for batch in BatchStream(store, keys, 96, columns=columns, labels=True, timestamps=True, threads=2):
        expected = rows_of(batch.keys)
        assert batch.rows is None
        assert batch.blobs is None
        np.testing.assert_array_equal(batch.columns["key"], batch.keys)
        np.testing.assert_array_equal(batch.columns["code"], expected["code"])
        np.testing.assert_array_equal(
            batch.columns["x"], np.column_stack([expected["value"], expected["code"]]).astype(np.float32)
        )
        np.testing.assert_array_equal(batch.labels, (batch.keys % np.uint64(5)).astype(np.int64))
        np.testing.assert_array_equal(batch.timestamps, store.timestamps(batch.keys))
        assert all(array.ctypes.data % 64 == 0 for array in (batch.keys, batch.weights, batch.labels, *batch.columns.values()))


def test_what_was_not_asked_for_is_not_there(rows):
    store, keys = rows
    batch = next(iter(BatchStream(store, keys, 10)))
    assert (batch.columns, batch.labels, batch.timestamps, batch.blobs) == (None, None, None, None)
    assert (len(batch), batch.number) == (10, 0)


@pytest.mark.parametrize("threads", [1, 3])
def test_samples_of_any_length_come_as_blobs(texts, threads):
    store, keys = texts
    for batch in BatchStream(store, keys, 64, threads=threads, labels=True):
        assert batch.rows is None
        assert batch.blobs is not None
        assert list(map(bytes, batch.blobs)) == [text_of(key) for key in batch.keys.tolist()]
        np.testing.assert_array_equal(batch.labels, (batch.keys % np.uint64(5)).astype(np.int64))


def content(batch: Batch) -> tuple[bytes, ...]:
    samples = batch.rows.rows if batch.rows is not None else batch.blobs.buffer  # type: ignore[union-attr]  # one of both is there
    arrays = (samples, batch.keys, batch.weights, batch.labels, batch.timestamps)
    return tuple(b"" if array is None else array.tobytes() for array in arrays)


@pytest.mark.parametrize(("prefetch", "threads"), [(0, 1), (1, 1), (2, 3)])
@pytest.mark.parametrize("kind", ["rows", "texts"])
def test_batches_that_are_kept_never_change(request, kind, prefetch, threads):
    store, keys = request.getfixturevalue(kind)
    stream = BatchStream(store, keys, 32, prefetch=prefetch, threads=threads, labels=True, timestamps=True)

    kept, parts, seen = [], [], []
    for epoch in range(3):
        stream.set_epoch(epoch)
        for batch in stream:
            seen.append(content(batch))
            # Every third batch whole, of every other the keys alone: that is enough.
            if batch.number % 3 == 0:
                kept.append((len(seen) - 1, batch))
            else:
                parts.append((len(seen) - 1, batch.keys[1:]))
            del batch
    assert len(kept) + len(parts) == len(seen) == 3 * len(stream)
    assert all(content(batch) == seen[i] for i, batch in kept)
    assert all(keys.tobytes() == seen[i][1][8:] for i, keys in parts)


def test_memory_does_not_grow_with_the_batches(rows):
    store, keys = rows
    sizes: list[int] = []

    def allocate(n: int) -> np.ndarray:
        sizes.append(n)
        return np.empty(n, dtype=np.uint8)

    stream = BatchStream(store, keys, 10, prefetch=2, threads=2, allocate=allocate)
    for epoch in range(4):
        stream.set_epoch(epoch)
        for batch in stream:
            assert len(batch) == 10
    # What waits, one per thread, and what the consumer has.
    assert len(sizes) <= 2 + 2 + 1
    assert len(set(sizes)) == 1


def test_no_batch_is_made_further_ahead_than_asked(rows):
    store, keys = rows
    for prefetch, threads in [(1, 1), (3, 1), (2, 3)]:
        made: list[int] = []

        def note(batch: Batch, to: list[int] = made) -> None:
            to.append(batch.number)

        stream = BatchStream(store, keys, 10, prefetch=prefetch, threads=threads, transform=note)
        for taken, _ in enumerate(stream, start=1):
            assert len(made) <= taken + prefetch + threads
        assert sorted(made) == list(range(100))


def test_a_transform_takes_the_place_of_the_batch(rows):
    store, keys = rows
    found = list(BatchStream(store, keys, 100, transform=lambda batch: (batch.number, int(batch.keys[0])), threads=3))
    assert found == [(batch.number, int(batch.keys[0])) for batch in BatchStream(store, keys, 100)]


def test_an_iteration_that_stops_is_gone_on_with_and_one_that_ends_begins_anew(rows):
    store, keys = rows
    stream = BatchStream(store, keys, 100, threads=2)
    whole = [batch.number for batch in stream]
    assert whole == list(range(10))
    for batch in stream:
        if batch.number == 3:
            break
    assert [batch.number for batch in stream] == list(range(4, 10))
    # All were taken, though nobody asked for one more.
    taken = iter(stream)
    assert [next(taken).number for _ in range(10)] == whole
    assert [batch.number for batch in stream] == whole


def test_a_new_iteration_closes_the_one_before(rows):
    store, keys = rows
    for prefetch in (0, 2):
        stream = BatchStream(store, keys, 100, prefetch=prefetch)
        before = iter(stream)
        assert next(before).number == 0
        after = iter(stream)
        with pytest.raises(RuntimeError, match="closed"):
            next(before)
        assert next(after).number == 1


@given(
    st.integers(0, 60),
    st.integers(1, 20),
    st.booleans(),
    st.sampled_from([False, True, "blocks"]),
    st.integers(1, 70),
    st.integers(1, 4),
    st.integers(0, 3),
    st.integers(1, 3),
)
def test_any_stream_deals_each_batch_to_one_consumer(
    rows, n, batch_size, drop_last, shuffle, block_size, consumers, prefetch, threads
):
    store, keys = rows
    options = {"shuffle": shuffle, "drop_last": drop_last, "block_size": block_size, "seed": n}
    alone = keys_of(BatchStream(store, keys[:n], batch_size, prefetch=0, **options))
    shares = [
        keys_of(BatchStream(store, keys[:n], batch_size, prefetch=prefetch, threads=threads, shard=(i, consumers), **options))
        for i in range(consumers)
    ]
    assert [alone[i::consumers] for i in range(consumers)] == shares


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"prefetch": -1}, "prefetch"),
        ({"training_set": [1, 2]}, r"keys must be uint64\[n\], not list"),
        ({"training_set": (np.ones(1, np.uint64), [1.0])}, r"weights must be float32\[n\], not list"),
        ({"threads": 0}, "threads"),
        ({"shard": (2, 2)}, r"shard must be \(i, n\)"),
        ({"shard": (-1, 2)}, "shard"),
        ({"shuffle": "all"}, "shuffle"),
        ({"block_size": 0}, "block_size"),
    ],
    ids=str,
)
def test_an_impossible_stream_is_refused(rows, options, match):
    store, keys = rows
    with pytest.raises(ValueError, match=match):
        BatchStream(store, **{"training_set": keys, "batch_size": 10, **options})


def test_columns_of_other_rows_are_refused(rows, texts):
    columns = Columns(np.dtype([("a", "<i4")]), {"a": "a"})
    for store, keys in (rows, texts):
        with pytest.raises(ValueError, match=r"columns are of rows of 4 bytes|different lengths"):
            next(iter(BatchStream(store, keys, 10, columns=columns)))


def test_files_of_samples_are_opened_by_the_iteration_and_not_before(tmp_path: Path):
    store, keys = row_store(tmp_path)
    (tmp_path / "shards" / "rows" / "1.bin").unlink()
    stream = BatchStream(store, keys, 100, shuffle=False, threads=2)
    assert len(stream) == 10
    with pytest.raises(Exception, match=r"1\.bin"):
        list(stream)
    assert stream.state_dict()["position"] == 7
