"""A state goes on at the exact next batch, with any number of consumers, and with no other stream."""

import json
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpath import BatchStream, SampleStore
from tests.fastpath.stored import row_store


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SampleStore, np.ndarray]]:
    store, keys = row_store(tmp_path_factory.mktemp("rows"), (200, 55))
    with store:
        yield store, keys


def stream_of(rows, *, batch_size=20, **options) -> BatchStream:
    store, keys = rows
    return BatchStream(store, keys, batch_size, **{"seed": 3, "epoch": 1, "threads": 2, **options})


def keys_of(stream: BatchStream) -> list[bytes]:
    return [batch.keys.tobytes() for batch in stream]


@pytest.mark.parametrize("shuffle", [True, "blocks", False])
@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_a_state_at_every_position_goes_on_at_the_next_batch(rows, shuffle, prefetch):
    options = {"shuffle": shuffle, "block_size": 30, "prefetch": prefetch}
    whole = keys_of(stream_of(rows, **options))
    stream = stream_of(rows, **options)
    states = [stream.state_dict()]
    states += [stream.state_dict() for _ in stream]
    assert [state["position"] for state in states] == list(range(14))
    for position, state in enumerate(states):
        resumed = stream_of(rows, epoch=9, **options)
        resumed.load_state_dict(json.loads(json.dumps(state)))
        assert resumed.epoch == 1
        assert keys_of(resumed) == whole[position:]
        # And the epoch after it is whole again.
        assert keys_of(resumed) == whole


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 13), st.integers(1, 40), st.booleans())
def test_another_number_of_consumers_goes_on_where_all_stood(rows, before, after, taken, batch_size, drop_last):
    options = {"batch_size": batch_size, "drop_last": drop_last, "prefetch": 1}
    whole = keys_of(stream_of(rows, **options))
    taken = min(taken, len(whole) // before)
    consumers = [stream_of(rows, shard=(i, before), **options) for i in range(before)]
    seen: list[bytes] = []
    iterators = [iter(consumer) for consumer in consumers]
    for _ in range(taken):
        seen += [next(iterator).keys.tobytes() for iterator in iterators]
    states = [consumer.state_dict() for consumer in consumers]
    # All in step say the same.
    assert all(state == states[0] for state in states)
    assert states[0]["position"] == taken * before
    del iterators
    shares = []
    for i in range(after):
        resumed = stream_of(rows, shard=(i, after), **options)
        resumed.load_state_dict(states[0])
        shares.append(keys_of(resumed))
    rest = [shares[i % after][i // after] for i in range(sum(map(len, shares)))]
    assert seen + rest == whole


def test_numbers_of_numpy_make_a_state_of_plain_ones(rows):
    numbers = {name: np.int64(value) for name, value in {"batch_size": 20, "seed": 3, "block_size": 9}.items()}
    stream = stream_of(rows, **numbers, drop_last=np.bool_(True), shuffle=np.bool_(True))
    stream.set_epoch(np.int64(2))  # type: ignore[arg-type]  # an integer that is no int
    state = json.loads(json.dumps(stream.state_dict()))
    stream_of(rows, block_size=9, drop_last=True).load_state_dict(state)


def test_a_state_counts_what_was_taken_and_not_what_was_prefetched(rows):
    stream = stream_of(rows, prefetch=8, threads=3)
    iterator = iter(stream)
    assert stream.state_dict()["position"] == 0
    for position in range(1, 6):
        next(iterator)
        assert stream.state_dict()["position"] == position


def test_consumers_at_the_end_say_that_the_epoch_is_over(rows):
    # 13 batches, 4 consumers: the first gets one more than the others.
    for i, n_batches in enumerate([4, 3, 3, 3]):
        stream = stream_of(rows, shard=(i, 4))
        assert len(list(stream)) == len(stream) == n_batches
        assert stream.state_dict()["position"] == 13


def test_the_epoch_that_a_state_is_of_is_gone_on_with_and_the_next_begins_at_its_start(rows):
    stream = stream_of(rows, epoch=1)
    iterator = iter(stream)
    for _ in range(5):
        next(iterator)
    state = stream.state_dict()
    resumed = stream_of(rows, epoch=0)
    resumed.load_state_dict(state)
    numbers = []
    for epoch in range(state["epoch"], 3):
        resumed.set_epoch(epoch)
        numbers.append([batch.number for batch in resumed])
    assert numbers == [list(range(5, 13)), list(range(13))]
    assert keys_of(resumed) == keys_of(stream_of(rows, epoch=2))


def test_a_state_of_a_finished_epoch_has_nothing_left_of_it(rows):
    stream = stream_of(rows)
    list(stream)
    resumed = stream_of(rows)
    resumed.load_state_dict(stream.state_dict())
    assert list(resumed) == []
    assert len(list(resumed)) == 13


def test_loading_a_state_ends_the_iteration_that_runs(rows):
    stream = stream_of(rows)
    iterator = iter(stream)
    next(iterator)
    stream.load_state_dict(stream.state_dict())
    with pytest.raises(RuntimeError, match="closed"):
        next(iterator)
    assert next(iter(stream)).number == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", 2),
        ("n", 254),
        ("batch_size", 21),
        ("seed", 4),
        ("shuffle", "blocks"),
        ("shuffle", 1),
        ("block_size", 7),
        ("drop_last", True),
        ("position", 14),
        ("position", -1),
        ("position", 1.0),
        ("position", True),
        ("epoch", -1),
        ("epoch", "1"),
        ("n", 255.0),
    ],
)
def test_a_foreign_state_is_refused_by_the_field_that_differs(rows, field, value):
    stream = stream_of(rows)
    iterator = iter(stream)
    next(iterator)
    state = stream.state_dict()
    with pytest.raises(ValueError, match=f"^{field}:"):
        stream.load_state_dict({**state, field: value})
    # Nothing changed, and the iteration goes on.
    assert stream.state_dict() == state
    assert next(iterator).number == 1


@pytest.mark.parametrize("change", [lambda s: s.pop("seed"), lambda s: s.update(more=1), lambda s: s.clear()])
def test_a_state_with_other_fields_is_refused(rows, change):
    stream = stream_of(rows)
    state = stream.state_dict()
    change(state)
    with pytest.raises(ValueError, match="a stream's state has the fields version, n, batch_size, seed"):
        stream.load_state_dict(state)


def test_a_stream_for_another_shard_stands_where_this_one_does(rows):
    whole = keys_of(stream_of(rows))
    stream = stream_of(rows)
    iterator = iter(stream)
    for _ in range(3):
        next(iterator)
    shares = [keys_of(stream.for_shard(i, 3)) for i in range(3)]
    assert shares == [whole[3 + i :: 3] for i in range(3)]
    assert next(iterator).number == 3
    with pytest.raises(ValueError, match="shard"):
        stream.for_shard(3, 3)
