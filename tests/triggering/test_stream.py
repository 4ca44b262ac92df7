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
    """A stream whose batches hold (time, is train) samples, and the flat list it must agree with: (key, running time)."""
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
    return Stream(parts, origin), [sample for sample in flat if sample[0] > origin]


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


def test_time_of_a_key_that_is_no_train_sample_is_an_error():
    stream, _ = build([[(3, True), (4, False)]])
    with pytest.raises(UnknownKey):
        stream.time(key_of(0, 1))
    with pytest.raises(UnknownKey):
        stream.time(key_of(5, 0))
