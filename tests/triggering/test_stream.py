"""The training stream against a list of all its samples."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.errors import UnknownKey
from modyn_dagster.keys import ORIGIN, key_of
from modyn_dagster.triggering import Stream, StreamBatch

Sample = tuple[int, np.datetime64]

batches = st.lists(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=6), min_size=1, max_size=6)


def _pair(positions: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return positions, times


def build(content: list[list[tuple[int, bool]]], origin: int = ORIGIN) -> tuple[Stream, list[Sample]]:
    """Stream whose batches hold (time, is train) samples, and the flat list it must agree with: (key, running time)."""
    parts, flat = batches_of(content)
    return Stream(parts, origin), [sample for sample in flat if sample[0] > origin]


def batches_of(content: list[list[tuple[int, bool]]]) -> tuple[list[StreamBatch], list[Sample]]:
    """Batches of (time, is train) samples, and all of their train samples."""
    parts, flat, running = [], [], 0
    for ordinal, samples in enumerate(content):
        positions = np.array([i for i, (_, train) in enumerate(samples) if train], dtype=np.int64)
        seconds = np.array([time for time, train in samples if train], dtype=np.int64)
        times = seconds.astype("datetime64[s]").astype("datetime64[us]")
        time_max = times.max() if len(times) else np.datetime64(0, "us")
        parts.append(StreamBatch(ordinal, len(positions), time_max, partial(_pair, positions, times)))
        for position, second in zip(positions, seconds, strict=True):
            running = max(running, int(second))
            flat.append((key_of(ordinal, int(position)), np.datetime64(running, "s").astype("datetime64[us]")))
    return parts, flat


keys = st.builds(key_of, st.integers(0, 6), st.integers(0, 7)) | st.just(ORIGIN)


@given(batches, keys, keys, keys)
def test_count_is_the_number_of_samples_in_the_half_open_range(content, origin, after, until):
    stream, flat = build(content, origin)
    assert stream.count(after, until) == sum(after < key <= until for key, _ in flat)
    assert len(stream) == len(flat)


@given(batches, keys, keys, st.integers(1, 40))
def test_nth_after_walks_the_list(content, origin, after, n):
    stream, flat = build(content, origin)
    later = [key for key, _ in flat if key > after]
    assert stream.nth_after(after, n) == (later[n - 1] if n <= len(later) else None)


@given(batches, keys, keys, st.integers(0, 31))
def test_first_at_or_after_compares_the_running_time(content, origin, after, seconds):
    stream, flat = build(content, origin)
    time = np.datetime64(seconds, "s").astype("datetime64[us]")
    expected = next((key for key, reached in flat if key > after and reached >= time), None)
    assert stream.first_at_or_after(time, after) == expected


@given(batches, keys)
def test_before_is_the_predecessor_inside_the_view(content, origin):
    stream, flat = build(content, origin)
    for index, (key, time) in enumerate(flat):
        assert stream.before(key) == (flat[index - 1][0] if index else None)
        assert stream.time(key) == time


@given(batches, keys, keys, st.integers(1, 40))
def test_the_last_samples_are_the_end_of_the_list(content, origin, until, n):
    stream, flat = build(content, origin)
    window = stream.last(n, until)
    seen = [key for key, _ in flat if key <= until]
    assert window.until == until
    assert [key for key in seen if key > window.after] == seen[-n:]
    assert window.after in {origin, *seen}


@given(batches, keys, keys, st.integers(-1, 31))
def test_later_than_compares_the_running_time(content, origin, until, seconds):
    stream, flat = build(content, origin)
    window = stream.later_than(seconds * 1_000_000, until)
    time = np.datetime64(seconds, "s")
    assert [key for key, _ in flat if window.after < key <= window.until] == [k for k, t in flat if k <= until and t > time]


@given(batches, keys, keys, keys)
def test_waiting_time_is_added_up_over_the_samples(content, origin, after, until):
    stream, flat = build(content, origin)
    times = [time.astype(int) for key, time in flat if after < key <= until]
    assert stream.waiting_time(after, until) == sum(times[-1] - time for time in times)


@given(batches, keys, keys)
def test_the_time_reached_at_any_key_is_that_of_the_last_sample_before_it(content, origin, key):
    stream, _ = build(content, origin)
    _, everything = build(content)
    reached = [time for at, time in everything if at <= key]
    assert stream.moment(key) == (reached[-1].astype(int) if reached else None)
    assert stream.total(key) == len(reached)


@given(batches, keys, keys, st.integers(1, 9), st.integers(0, 31))
def test_answers_do_not_depend_on_what_was_asked_before(content, origin, key, n, seconds):
    def answers(stream: Stream) -> list:
        time = np.datetime64(seconds, "s")
        moment = int(time.astype("datetime64[us]").astype(np.int64))
        point = stream.first_at_or_after(moment, key)
        before = None if point is None else stream.before(point)
        passing = None if point is None else (point, origin if before is None else before, stream.moment(point))
        assert stream.first_passing(moment, key) == passing
        asked = [stream.nth_after(key, n), stream.first_at_or_after(time, key), stream.before(key), stream.moment(key)]
        return [*asked, stream.count(key, key + n), stream.last(n, key), stream.later_than(seconds * 1_000_000, key)]

    used, flat = build(content, origin)
    for earlier, _ in flat:
        used.nth_after(earlier - 1, 1)
        assert answers(used) == answers(build(content, origin)[0])


@pytest.mark.parametrize("origin", [-1, 0, 2, key_of(1, 1), key_of(1, 3)])
def test_batches_without_gaps_are_seen_from_the_origin_on_whatever_was_asked_before(origin):
    content = [[(3, True), (1, True), (4, True)], [(1, True), (5, True), (9, True), (2, True)]]
    stream, flat = build(content, origin)
    every = [key for key, _ in build(content)[1]]
    for warm in every:
        for key in [ORIGIN, *every]:
            stream.nth_after(warm, 1)
            later, earlier = [k for k, _ in flat if k > key], [k for k, _ in flat if k < key]
            assert [stream.nth_after(key, n) for n in range(1, 9)] == [*later, *[None] * (8 - len(later))]
            assert stream.before(key) == (earlier[-1] if earlier else None)
            assert [stream.count(key, until) for until in every] == [sum(key < k <= until for k, _ in flat) for until in every]
            for seconds in range(11):
                reached = [k for k, time in flat if k > key and time >= np.datetime64(seconds, "s")]
                stream.nth_after(warm, 1)
                passing = stream.first_passing(seconds * 1_000_000, key)
                assert stream.first_at_or_after(np.datetime64(seconds, "s"), key) == (reached[0] if reached else None)
                if not reached:
                    assert passing is None
                else:
                    before = [origin, *(k for k, _ in flat if k < reached[0])][-1]
                    assert passing == (reached[0], before, dict(flat)[reached[0]].astype("datetime64[us]").astype(int))


@given(batches, keys)
def test_a_stream_extended_batch_by_batch_is_the_stream_of_all(content, origin):
    whole, flat = build(content, origin)
    grown = Stream([], origin)
    for batch in batches_of(content)[0]:
        grown = grown.extended(batch)
    assert len(grown) == len(whole)
    assert [grown.nth_after(origin, n) for n in range(1, len(flat) + 2)] == [*(key for key, _ in flat), None]
    assert [grown.time(key) for key, _ in flat] == [time for _, time in flat]


@given(batches, keys)
def test_a_stream_made_of_columns_is_the_stream_of_the_batches(content, origin):
    parts, flat = batches_of(content)
    ordinals, counts = (np.array([getattr(part, name) for part in parts], dtype=np.int64) for name in ("ordinal", "n"))
    maxima = np.array([part.time_max for part in parts], dtype="datetime64[us]")
    stream = Stream.of_columns(ordinals, counts, maxima, lambda place: parts[place].load, origin)
    later = [(key, time) for key, time in flat if key > origin]
    assert len(stream) == len(later)
    assert [stream.nth_after(origin, n) for n in range(1, len(later) + 2)] == [*(key for key, _ in later), None]
    assert [stream.time(key) for key, _ in later] == [time for _, time in later]


def test_time_of_a_key_that_is_no_train_sample_is_an_error():
    stream, _ = build([[(3, True), (4, False)]])
    with pytest.raises(UnknownKey):
        stream.time(key_of(0, 1))
    with pytest.raises(UnknownKey):
        stream.time(key_of(5, 0))
