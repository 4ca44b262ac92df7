"""Laws of every sampler of a stream, and the bounds, states and errors that are promised."""

import json
import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modyn_dagster.keys import KeyArray
from modyn_dagster.selection import time_biased
from modyn_dagster.selection.time_biased import (
    BTBS,
    DRTBS,
    DTTBS,
    RTBS,
    TTBS,
    Sampler,
    SlidingWindow,
    TimeWindow,
    UniformReservoir,
    decay_for,
)
from tests.examples import examples

SAMPLERS: dict[str, Callable[[int], Sampler]] = {
    "rtbs": lambda seed: RTBS(7, 0.3, seed),
    "ttbs": lambda seed: TTBS(7, 0.3, 4.0, seed),
    "btbs": lambda seed: BTBS(0.3, seed),
    "d_rtbs": lambda seed: DRTBS(7, 0.3, seed, shards=3),
    "d_ttbs": lambda seed: DTTBS(7, 0.3, 4.0, seed, shards=3),
    "uniform_reservoir": lambda seed: UniformReservoir(7, seed),
    "sliding_window": lambda seed: SlidingWindow(7),
    "time_window": lambda seed: TimeWindow(2.5),
}
Stream = list[tuple[KeyArray, float]]
AnySampler = TypeVar("AnySampler", bound=Sampler)

sampler_kinds = st.sampled_from(sorted(SAMPLERS))
elapsed_times = st.sampled_from([0.0, 0.25, 1.0, 1.0, 3.7, 50.0, 1e4])
streams = st.lists(st.tuples(st.sampled_from([0, 0, 1, 2, 5, 9, 40]), elapsed_times), max_size=14).map(
    lambda sizes: batches([size for size, _ in sizes], [elapsed for _, elapsed in sizes])
)


def batches(sizes: list[int], elapsed: list[float]) -> Stream:
    """Batches of distinct keys, counted through from 0."""
    ends = np.cumsum(sizes)
    return [(np.arange(end - n, end, dtype=np.uint64), e) for end, n, e in zip(ends, sizes, elapsed, strict=True)]


def fed(sampler: AnySampler, stream: Stream) -> AnySampler:
    for keys, elapsed in stream:
        sampler.update(keys, elapsed)
    return sampler


@settings(max_examples=examples(300))
@given(sampler_kinds, streams, st.integers(0, 5))
def test_a_sample_is_a_set_of_keys_of_the_stream_and_bounded_where_promised(kind, stream, seed):
    sampler, n_seen = SAMPLERS[kind](seed), 0
    for keys, elapsed in stream:
        sampler.update(keys, elapsed)
        n_seen += len(keys)
        sample = sampler.sample()
        assert sample.dtype == np.uint64
        assert len(np.unique(sample)) == len(sample)
        assert not len(sample) or sample.max() < n_seen
        if kind in ("rtbs", "d_rtbs", "uniform_reservoir", "sliding_window"):
            assert len(sample) <= 7


@given(sampler_kinds, streams, st.integers(0, 5))
def test_sampling_is_pure_and_gives_an_array_of_its_own(kind, stream, seed):
    sampler = fed(SAMPLERS[kind](seed), stream)
    state, sample = sampler.state_dict(), sampler.sample()
    again = sampler.sample()
    np.testing.assert_array_equal(again, sample)
    again[:] = 0
    np.testing.assert_array_equal(sampler.sample(), sample)
    assert sampler.state_dict() == state


@given(sampler_kinds, streams, st.integers(0, 5))
def test_the_callers_arrays_are_neither_kept_nor_changed(kind, stream, seed):
    expected = fed(SAMPLERS[kind](seed), stream).sample()
    sampler = SAMPLERS[kind](seed)
    for keys, elapsed in stream:
        lent = keys.copy()
        sampler.update(lent, elapsed)
        np.testing.assert_array_equal(lent, keys)
        lent[:] = 2**63
    np.testing.assert_array_equal(sampler.sample(), expected)


@pytest.mark.long
@settings(max_examples=examples(300))
@given(sampler_kinds, streams, st.integers(0, 5), st.data())
def test_a_state_restored_at_any_point_through_json_goes_on_the_same(kind, stream, seed, data):
    cut = data.draw(st.integers(0, len(stream)))
    whole = fed(SAMPLERS[kind](seed), stream[:cut])
    restored = SAMPLERS[kind](seed + 1)
    restored.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    np.testing.assert_array_equal(restored.sample(), whole.sample())
    for keys, elapsed in stream[cut:]:
        whole.update(keys, elapsed)
        restored.update(keys, elapsed)
        np.testing.assert_array_equal(restored.sample(), whole.sample())
    assert restored.state_dict() == whole.state_dict()


@given(sampler_kinds, streams, st.integers(0, 5))
def test_a_state_does_not_change_with_the_sampler_it_was_taken_of(kind, stream, seed):
    sampler = fed(SAMPLERS[kind](seed), stream)
    state = sampler.state_dict()
    before = json.dumps(state)
    sampler.update(np.arange(1_000, 1_020, dtype=np.uint64))
    assert json.dumps(state) == before


@given(sampler_kinds, streams, elapsed_times, st.integers(0, 5))
def test_the_time_before_the_first_batch_changes_nothing(kind, stream, elapsed, seed):
    if stream:
        other = [(stream[0][0], elapsed), *stream[1:]]
        assert fed(SAMPLERS[kind](seed), stream).state_dict() == fed(SAMPLERS[kind](seed), other).state_dict()


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("elapsed", [-1.0, -1e-9, math.nan, math.inf])
@pytest.mark.parametrize("first", [True, False])
def test_time_that_runs_backwards_is_refused_and_changes_nothing(kind, elapsed, first):
    sampler = SAMPLERS[kind](0)
    if not first:
        sampler.update(np.arange(9, dtype=np.uint64))
    before = sampler.state_dict()
    with pytest.raises(ValueError, match="elapsed"):
        sampler.update(np.arange(3, dtype=np.uint64), elapsed)
    assert sampler.state_dict() == before


@pytest.mark.parametrize("keys", [np.zeros((2, 2), np.uint64), np.array([1.0]), np.array([3, -1]), np.uint64(3)])
def test_keys_that_are_none_are_refused(keys):
    with pytest.raises(ValueError, match="keys must"):
        RTBS(3, 0.1, 0).update(keys)


@given(streams, st.integers(1, 30), st.sampled_from([0.0, 0.07, 0.5, 3.0]), st.integers(0, 3), st.integers(0, 4))
def test_rtbs_holds_the_weight_of_the_stream_up_to_n_in_shards_or_not(stream, n, decay, seed, shards):
    sampler = DRTBS(n, decay, seed, shards=shards) if shards else RTBS(n, decay, seed)
    weight = 0.0
    for keys, elapsed in stream:
        sampler.update(keys, elapsed)
        weight = weight * math.exp(-decay * elapsed) + len(keys)
        assert sampler.weight == pytest.approx(weight, rel=1e-12, abs=1e-300)
        assert sampler.fill == pytest.approx(min(n, weight) / n, rel=1e-12, abs=1e-300)
        # The size is C rounded to one of its neighbours: no smaller variance is possible (Theorem 4.4).
        size = n * sampler.fill
        assert math.floor(size + 1e-9) <= len(sampler.sample()) <= math.ceil(size - 1e-9)


def test_rtbs_without_decay_keeps_all_until_it_is_full():
    sampler = fed(RTBS(10, 0.0, 0), batches([4, 0, 6], [1.0, 5.0, 1.0]))
    np.testing.assert_array_equal(np.sort(sampler.sample()), np.arange(10))
    sampler.update(np.arange(10, 1_000, dtype=np.uint64))
    assert len(sampler.sample()) == 10


def test_an_rtbs_sample_that_decayed_to_nothing_starts_again():
    sampler = fed(RTBS(10, 1.0, 0), batches([30, 0], [1.0, 1e6]))
    assert (sampler.fill, len(sampler.sample())) == (0.0, 0)
    sampler.update(np.arange(100, 104, dtype=np.uint64))
    assert sampler.fill == 0.4


@given(st.lists(st.integers(0, 30), max_size=8), st.lists(st.integers(0, 30), max_size=8), st.integers(0, 9))
def test_a_uniform_reservoir_does_not_see_how_the_stream_is_cut(sizes, other_sizes, seed):
    total = max(sum(sizes), sum(other_sizes))
    found = []
    for cut in (sizes, other_sizes):
        ends = [*np.cumsum(cut), total]
        chunks = np.split(np.arange(total, dtype=np.uint64), ends[:-1])
        found.append(fed(UniformReservoir(5, seed), [(chunk, 1.0) for chunk in chunks]).sample())
    np.testing.assert_array_equal(found[0], found[1])
    assert len(found[0]) == min(5, total)


@given(streams, st.integers(1, 30))
def test_a_sliding_window_is_the_end_of_the_stream(stream, n):
    seen = np.concatenate([np.empty(0, np.uint64), *(keys for keys, _ in stream)])
    np.testing.assert_array_equal(fed(SlidingWindow(n), stream).sample(), seen[-n:])


@given(streams)
def test_a_time_window_is_what_is_younger_than_its_span(stream):
    expected = []
    for i, (keys, _) in enumerate(stream):
        if sum(elapsed for _, elapsed in stream[i + 1 :]) < 2.5:
            expected += keys.tolist()
    assert fed(TimeWindow(2.5), stream).sample().tolist() == expected


@given(st.floats(0.1, 1e4), st.integers(1, 10_000), st.floats(1e-6, 1 - 1e-6))
def test_a_decay_keeps_one_of_n_items_with_the_probability_asked_for(k, n, q):
    decay = decay_for(k, n, q)
    assert -math.expm1(n * math.log1p(-math.exp(-decay * k))) == pytest.approx(q, rel=1e-6)


@pytest.mark.parametrize(("arguments", "field"), [((0, 1, 0.5), "k"), ((1, 0, 0.5), "n"), ((1, 1, 0.0), "q"), ((1, 1, 1.0), "q")])
def test_impossible_intentions_are_refused(arguments, field):
    with pytest.raises(ValueError, match=f"^{field} must"):
        decay_for(*arguments)


def test_ttbs_accepts_the_share_of_its_formula_and_no_more_than_all():
    assert TTBS(1_000, 0.1, 100, 0).q == pytest.approx(1_000 * (1 - math.exp(-0.1)) / 100)
    assert TTBS(100, 50.0, 100, 0).q == 1.0
    with pytest.raises(ValueError, match="mean_batch_size must be at least"):
        TTBS(1_000, 0.1, 95, 0)


@given(n=st.integers(1, 10**6), decay=st.floats(1e-4, 5))
def test_ttbs_takes_the_mean_batch_size_that_just_suffices_however_it_was_rounded(n, decay):
    q = TTBS(n, decay, n * (1 - math.exp(-decay)), 0).q
    assert q <= 1
    assert q == pytest.approx(1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: RTBS(0, 0.1, 0),
        lambda: RTBS(2.5, 0.1, 0),  # type: ignore[arg-type]  # what is to be refused
        lambda: RTBS(math.nan, 0.1, 0),  # type: ignore[arg-type]  # what is to be refused
        lambda: SlidingWindow(math.inf),  # type: ignore[arg-type]  # what is to be refused
        lambda: RTBS(5, -0.1, 0),
        lambda: RTBS(5, math.inf, 0),
        lambda: DRTBS(0, 0.1, 0, shards=2),
        lambda: DRTBS(5, -0.1, 0, shards=2),
        lambda: DRTBS(5, 0.1, 0, shards=0),
        lambda: DRTBS(5, 0.1, 0, shards=1.5),  # type: ignore[arg-type]  # what is to be refused
        lambda: DRTBS(10**9, 0.1, 0, shards=2),
        lambda: DTTBS(5, -0.1, 5, 0, shards=2),
        lambda: DTTBS(5, 0.1, 0, 0, shards=2),
        lambda: DTTBS(5, 0.1, 5, 0, shards=-1),
        lambda: TTBS(0, 0.1, 5, 0),
        lambda: TTBS(5, -0.1, 5, 0),
        lambda: TTBS(5, 0.1, 0, 0),
        lambda: BTBS(math.nan, 0),
        lambda: UniformReservoir(0, 0),
        lambda: SlidingWindow(0),
        lambda: TimeWindow(0.0),
    ],
)
def test_impossible_arguments_are_refused(make):
    with pytest.raises(ValueError, match="must be"):
        make()


@pytest.mark.parametrize("small", [RTBS(3, 0.1, 0), UniformReservoir(3, 0), SlidingWindow(3)], ids=lambda s: s.KIND)
def test_a_state_that_cannot_belong_here_is_refused(small):
    large = {"rtbs": RTBS(9, 0.1, 0), "uniform_reservoir": UniformReservoir(9, 0), "sliding_window": SlidingWindow(9)}[small.KIND]
    large.update(np.arange(20, dtype=np.uint64))
    with pytest.raises(ValueError, match="does not belong"):
        small.load_state_dict(large.state_dict())
    with pytest.raises(ValueError, match="not of"):
        small.load_state_dict(BTBS(0.1, 0).state_dict())


def test_what_is_exported_is_what_is_there():
    assert all(hasattr(time_biased, name) for name in time_biased.__all__)
