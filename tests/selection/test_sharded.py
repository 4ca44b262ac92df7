"""Samples in shards: bits that no pool decides about, items that stay where they came to, and what is refused."""

import json
import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from modyn_dagster.distributed.in_process import InProcessPool
from modyn_dagster.distributed.protocols import Pool
from modyn_dagster.errors import WorkerLost
from modyn_dagster.keys import KeyArray
from modyn_dagster.selection.sampler_state import decoded, encoded
from modyn_dagster.selection.time_biased import DRTBS, DTTBS
from modyn_dagster.selection.time_biased.sharded import sharded_sampler
from modyn_dagster.selection.time_biased.sharded.coordinator import Coordinator, deal
from modyn_dagster.selection.time_biased.sharded.rounds import Assignment, Round, advance
from modyn_dagster.selection.time_biased.sharded.shard import Append, Exchange, Keep, Lift, Shard, compacted
from modyn_dagster.selection.time_biased.sharded.sharded_sampler import ShardedSampler, laid_out
from tests.examples import examples
from tests.selection.pools import LosingPool, WhimsicalPool

Parts = list[KeyArray]

kinds = st.sampled_from(["d_rtbs", "d_ttbs"])
#: Sizes of the parts of batches on three shards: uneven, empty, and huge.
part_sizes = st.lists(st.tuples(*[st.sampled_from([0, 0, 1, 2, 5, 40])] * 3), max_size=10)
elapsed_times = st.sampled_from([0.0, 0.25, 1.0, 3.7, 50.0])


def sampler_of(kind: str, seed: int = 0, pool: Pool | None = None, shards: int = 3) -> ShardedSampler:
    if kind == "d_rtbs":
        return DRTBS(9, 0.3, seed, shards=shards, pool=pool)
    return DTTBS(9, 0.3, 5.0, seed, shards=shards, pool=pool)


def numbered(sizes: Sequence[tuple[int, ...]]) -> list[Parts]:
    """Batches in parts, of distinct keys, whose hundreds of thousands name the shard."""
    ends = accumulate(sum(batch) for batch in sizes)
    found = []
    for end, batch in zip(ends, sizes, strict=True):
        keys = np.arange(end - sum(batch), end, dtype=np.uint64)
        parts = np.split(keys, np.cumsum(batch)[:-1])
        found.append([part + np.uint64(100_000 * shard) for shard, part in enumerate(parts)])
    return found


def shards_of(sampler: ShardedSampler) -> list[tuple[KeyArray, int | None]]:
    return [(decoded(shard["keys"]), shard["partial"]) for shard in sampler.state_dict()["shards"]]


@settings(max_examples=examples(50))
@given(kinds, part_sizes, st.lists(elapsed_times, min_size=10, max_size=10), st.integers(0, 5))
def test_items_stay_on_the_shard_they_came_to(kind, sizes, elapsed, seed):
    sampler = sampler_of(kind, seed)
    for parts, time in zip(numbered(sizes), elapsed, strict=False):
        sampler.update_parts(parts, time)
        for number, (keys, partial) in enumerate(shards_of(sampler)):
            there = np.append(keys, np.array([] if partial is None else [partial], np.uint64))
            assert (there // np.uint64(100_000) == number).all()


@settings(max_examples=examples(50))
@given(part_sizes, st.lists(elapsed_times, min_size=10, max_size=10), st.integers(0, 5))
def test_the_shards_hold_the_latent_sample_that_the_coordinator_counts(sizes, elapsed, seed):
    sampler = sampler_of("d_rtbs", seed)
    assert isinstance(sampler, DRTBS)
    weight = 0.0
    for parts, time in zip(numbered(sizes), elapsed, strict=False):
        sampler.update_parts(parts, time)
        weight = weight * math.exp(-0.3 * time) + sum(map(len, parts))
        assert sampler.weight == pytest.approx(weight, rel=1e-12, abs=1e-300)
        shards, fraction = shards_of(sampler), sampler.state_dict()["fraction"]
        assert sum(len(keys) for keys, _ in shards) + fraction == pytest.approx(min(9, weight), rel=1e-12, abs=1e-300)
        assert sum(partial is not None for _, partial in shards) == (fraction > 0)


@settings(max_examples=examples(30))
@given(kinds, part_sizes, st.integers(0, 5), st.integers(1, 7), st.integers(0, 99), st.sets(st.integers(0, 9)))
def test_neither_the_pool_nor_the_moment_of_its_calls_shows_in_the_bits(kind, sizes, seed, workers, whim, looks):
    plain, other = sampler_of(kind, seed, InProcessPool()), sampler_of(kind, seed, WhimsicalPool(workers, whim))
    for number, parts in enumerate(numbered(sizes)):
        plain.update_parts(parts, 0.5)
        other.update_parts(parts, 0.5)
        if number in looks:
            other.sample()
    assert_array_equal(other.sample(), plain.sample())
    assert other.state_dict() == plain.state_dict()


def test_rounds_wait_for_one_call_per_shard_and_not_for_more_than_memory_allows(monkeypatch):
    batches = [np.arange(1_000 * number, 1_000 * number + 120, 2, dtype=np.uint64) for number in range(21)]
    pool, unhurried = WhimsicalPool(1, 0), sampler_of("d_ttbs")
    sampler = sampler_of("d_ttbs", pool=pool)
    for keys in batches:
        unhurried.update(keys)
    for keys in batches[:20]:
        sampler.update(keys)
    assert pool.calls == 0
    monkeypatch.setattr(sharded_sampler, "MOST_WAITING", 1_000)
    sampler.update(batches[20])
    assert 3 <= pool.calls <= 6
    assert unhurried.state_dict() == sampler.state_dict()


@settings(max_examples=examples(30))
@given(kinds, st.integers(0, 5), st.integers(1, 4))
def test_a_lost_worker_is_told_and_the_next_call_goes_on_from_the_same_shards(kind, after, seed):
    sampler, undisturbed = sampler_of(kind, seed, LosingPool(after)), sampler_of(kind, seed)
    lost = 0
    for parts in numbered([(30, 2, 9), (0, 4, 4), (20, 20, 0)]):
        sampler.update_parts(parts)
        undisturbed.update_parts(parts)
        try:
            sampler.sample()
        except WorkerLost as error:
            assert "shard" in str(error)
            lost += 1
    assert lost == 1
    assert sampler.state_dict() == undisturbed.state_dict()


@settings(max_examples=examples(30))
@given(kinds, part_sizes, st.integers(0, 5), st.integers(0, 2), st.data())
def test_a_lost_shard_is_computed_again_from_its_own_state_and_the_numbers_of_the_others(kind, sizes, seed, number, data):
    cut = data.draw(st.integers(0, len(sizes)))
    batches = numbered(sizes)
    whole = sampler_of(kind, seed)
    for parts in batches[:cut]:
        whole.update_parts(parts)
    state = json.loads(json.dumps(whole.state_dict()))
    for other, shard in enumerate(state["shards"]):
        if other != number:
            shard["keys"] = encoded(np.zeros_like(decoded(shard["keys"])))
    restored = sampler_of(kind, seed + 1)
    restored.load_state_dict(state)
    for parts in batches[cut:]:
        whole.update_parts(parts)
        restored.update_parts([part if i == number else np.zeros_like(part) for i, part in enumerate(parts)])
    expected, found = shards_of(whole)[number], shards_of(restored)[number]
    assert_array_equal(found[0], expected[0])
    assert found[1] == expected[1]


@settings(max_examples=examples(30))
@given(st.integers(0, 50), st.integers(1, 9), st.integers(0, 30))
def test_a_batch_is_laid_out_in_equal_stretches_that_take_turns(n, shards, ordinal):
    keys = np.arange(n, dtype=np.uint64)
    parts = laid_out(keys, shards, ordinal)
    assert len(parts) == shards
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    turned = [parts[(ordinal + i) % shards] for i in range(shards)]
    assert_array_equal(np.concatenate(turned), keys)


def test_single_items_reach_every_shard_in_turn():
    sampler = DRTBS(100, 0.0, 0, shards=4)
    for key in range(8):
        sampler.update(np.array([key], np.uint64))
    assert [keys.tolist() for keys, _ in shards_of(sampler)] == [[0, 4], [1, 5], [2, 6], [3, 7]]


@settings(max_examples=examples(30))
@given(kinds, st.integers(0, 5), st.lists(st.integers(0, 60), max_size=8))
def test_keys_without_gaps_travel_as_ranges_and_are_the_same_keys(kind, seed, sizes):
    """Keys times 2 have gaps, and the same positions are chosen of them."""
    close, wide = sampler_of(kind, seed), sampler_of(kind, seed)
    for parts in numbered([(n,) for n in sizes]):
        close.update(parts[0])
        wide.update(parts[0] * np.uint64(2))
    assert_array_equal(close.sample() * np.uint64(2), wide.sample())
    assert isinstance(compacted(np.arange(3, 9, dtype=np.uint64)), range)


@settings(max_examples=examples(30))
@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.data())
def test_dealt_counts_add_up_and_no_shard_gives_more_than_it_has(sizes, data):
    k = data.draw(st.integers(0, sum(sizes)))
    counts = deal(np.random.default_rng(data.draw(st.integers(0, 9))), sizes, k)
    assert sum(counts) == k
    assert all(0 <= count <= size for count, size in zip(counts, sizes, strict=True))


def test_an_assignment_is_a_value_that_no_call_changes():
    shard = Shard(np.arange(20, dtype=np.uint64), 77)
    rounds = [Round(4, [Exchange(3, 5), Lift(settles=True), Keep(9), Append()], np.arange(100, 110, dtype=np.uint64))]
    assignment = Assignment(shard, ("d_rtbs", "shard", 2), 0, rounds)
    first, second = advance(assignment), advance(assignment)
    assert (shard.keys.tolist(), shard.partial) == (list(range(20)), 77)
    assert_array_equal(first.keys, second.keys)
    assert first.partial == second.partial
    assert len(first.keys) == 9 + 10
    assert str(assignment) == "d_rtbs shard 2, updates 4 to 4"


def test_rounds_shards_and_seeds_have_random_numbers_of_their_own():
    def kept(path: tuple[int | str, ...], seed: int, ordinal: int) -> list[int]:
        shard = Shard(np.arange(100, dtype=np.uint64))
        keys: list[int] = advance(Assignment(shard, path, seed, [Round(ordinal, [Keep(50)], shard.keys)])).keys.tolist()
        return keys

    places = [(("a", 0), 0, 0), (("a", 0), 0, 1), (("a", 1), 0, 0), (("b", 0), 0, 0), (("a", 0), 1, 0)]
    assert len({tuple(kept(*place)) for place in places}) == len(places)
    samplers = [sampler_of("d_ttbs", seed) for seed in range(2)]
    for sampler in samplers:
        for number in range(3):
            sampler.update_parts([np.arange(1_000 * number, 1_000 * number + 200, dtype=np.uint64)] * 3)
    chosen = [tuple((keys % np.uint64(1_000)).tolist()) for sampler in samplers for keys, _ in shards_of(sampler)]
    assert len(set(chosen)) == 6


def test_more_items_than_can_be_dealt_exactly_are_refused_before_anything_changes():
    coordinator = Coordinator(1_000, 0.1, 2)
    with pytest.raises(ValueError, match="smaller parts, with no time elapsed"):
        coordinator.decide([10**9, 5], 1.0, np.random.default_rng(0))
    assert coordinator.weight == 0


def test_parts_for_other_shards_and_times_that_run_backwards_are_refused():
    sampler, part = DRTBS(5, 0.1, 0, shards=2), np.arange(3, dtype=np.uint64)
    with pytest.raises(ValueError, match="as many as the 2 shards, not 3"):
        sampler.update_parts([part] * 3)
    with pytest.raises(ValueError, match="elapsed must"):
        sampler.update_parts([part] * 2, -1.0)
    with pytest.raises(ValueError, match="keys must"):
        sampler.update_parts([part, np.array([0.5])])
    assert sampler.state_dict() == DRTBS(5, 0.1, 0, shards=2).state_dict()


def test_a_state_that_cannot_belong_here_is_refused_and_changes_nothing():
    sampler = DRTBS(20, 0.5, 0, shards=3)
    sampler.update(np.arange(12, dtype=np.uint64))
    sampler.update(np.arange(12, 14, dtype=np.uint64), 1.3)
    state = sampler.state_dict()
    assert state["fraction"] > 0
    two_partial = [{**shard, "partial": 5} for shard in state["shards"]]
    none_partial = [{**shard, "partial": None} for shard in state["shards"]]
    for other, bad in (
        (DRTBS(20, 0.5, 0, shards=2), state),
        (DRTBS(4, 0.5, 0, shards=3), state),
        (DRTBS(20, 0.5, 0, shards=3), {**state, "shards": two_partial}),
        (DRTBS(20, 0.5, 0, shards=3), {**state, "shards": none_partial}),
        (DRTBS(20, 0.5, 0, shards=3), {**state, "saturated": 30.0}),
        (DTTBS(20, 0.5, 10, 0, shards=3), state),
    ):
        before = other.state_dict()
        with pytest.raises(ValueError, match=r"does not belong|not of"):
            other.load_state_dict(bad)
        assert other.state_dict() == before
