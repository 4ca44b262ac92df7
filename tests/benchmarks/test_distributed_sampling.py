"""Contenders of samples in shards: right samplers too, however they decide and wherever they keep the sample."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psycopg2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.stats import binom

from benchmarks.contenders.central_decisions import CentralDRTBS, Positions, positions_by_shard
from benchmarks.contenders.key_value_reservoir import KeyValueRTBS
from benchmarks.contenders.postgres_slots import PostgresSlots, connection
from benchmarks.measure import Spread
from benchmarks.sharded_plots import draw
from modyn_dagster.distributed.in_process import InProcessPool
from modyn_dagster.keys import KeyArray
from tests.examples import examples

STREAM = ([12, 0, 3, 0, 9, 20], [1.0, 1.0, 2.0, 0.5, 1.0, 0.3])
VARIANTS = ("Cent,CP", "Cent,KV,CJ", "Cent,KV,RJ")


class Slots:
    """A store in this process."""

    def __init__(self) -> None:
        self.keys: dict[int, int] = {}

    def put(self, slots: Positions, keys: KeyArray) -> None:
        self.keys |= zip(slots.tolist(), keys.tolist(), strict=True)

    def get(self, slots: Positions) -> KeyArray:
        return np.array([self.keys[slot] for slot in slots.tolist()], np.uint64)

    def cut(self, size: int) -> None:
        self.keys = {slot: key for slot, key in self.keys.items() if slot < size}


def sampler_of(variant: str, seed: int) -> CentralDRTBS | KeyValueRTBS:
    if variant == "Cent,CP":
        return CentralDRTBS(8, 0.3, seed, shards=3)
    return KeyValueRTBS(8, 0.3, seed, store=Slots(), pool=InProcessPool(), join="RJ" if variant.endswith("RJ") else "CJ")


def sampled(variant: str, seed: int) -> KeyArray:
    sampler, first = sampler_of(variant, seed), 0
    for n, elapsed in zip(*STREAM, strict=True):
        sampler.update_parts(np.array_split(np.arange(first, first + n, dtype=np.uint64), 3), elapsed)
        first += n
    return sampler.sample()


@pytest.mark.law
@pytest.mark.soak("distributed")
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_keeps_the_law_of_r_tbs(variant: str) -> None:
    sizes, elapsed = STREAM
    weight = np.repeat([math.exp(-0.3 * sum(elapsed[i + 1 :])) for i in range(len(sizes))], sizes)
    chance, runs = min(8, weight.sum()) / weight.sum() * weight, examples(400)
    counts = np.zeros(len(weight), np.int64)
    for seed in range(runs):
        counts[sampled(variant, seed).astype(np.int64)] += 1
    tail = np.minimum(binom.cdf(counts, runs, chance), binom.sf(counts - 1, runs, chance))
    assert tail.min() >= 1e-6 / len(VARIANTS) / len(weight) / 2


@given(st.sampled_from(VARIANTS), st.integers(0, 20))
@settings(max_examples=examples(20))
def test_every_variant_keeps_a_set_of_bounded_size(variant: str, seed: int) -> None:
    sample = sampled(variant, seed)
    assert len(np.unique(sample)) == len(sample) <= 8


@given(st.lists(st.integers(0, 20), min_size=1, max_size=5), st.data())
def test_positions_are_as_many_as_asked_for_and_inside_their_shards(sizes: list[int], data: st.DataObject) -> None:
    k = data.draw(st.integers(0, sum(sizes)))
    parts = positions_by_shard(sizes, k, np.random.default_rng(0))
    assert sum(map(len, parts)) == k
    for part, size in zip(parts, sizes, strict=True):
        assert len(np.unique(part)) == len(part)
        assert not len(part) or 0 <= part.min() <= part.max() < size


@pytest.fixture
def slots(engine) -> Iterator[PostgresSlots]:
    store = PostgresSlots(engine.url.set(drivername="postgresql").render_as_string(hide_password=False), "reservoir")
    store.make()
    yield store
    connection(store.url).close()
    connection.cache_clear()


@pytest.mark.soak("distributed")
def test_postgres_holds_the_same_slots_as_a_dictionary(slots: PostgresSlots) -> None:
    plain, rng = Slots(), np.random.default_rng(0)
    for store in (slots, plain):
        store.put(np.arange(100), np.arange(100, dtype=np.uint64))
    for _ in range(5):
        where, keys = rng.choice(100, 30, replace=False), rng.integers(2**62, size=30).astype(np.uint64)
        for store in (slots, plain):
            store.put(where, keys)
    for store in (slots, plain):
        store.cut(70)
    asked = rng.choice(70, 20, replace=False)
    assert_array_equal(slots.get(asked), plain.get(asked))
    with pytest.raises(psycopg2.Error, match="already exists"):
        slots.make()


def test_the_picture_shows_what_was_measured(tmp_path: Path) -> None:
    names = ["fig7.cent_cp", "fig7.dist_cp", "fig8.1", "fig8.1.ten", "fig8.one_thread"]
    names += [f"fig9.{line}.{batch}" for line in ("pool", "ranges", "in_process", "one_thread") for batch in (10, 1000)]
    draw({name: Spread(0.1, 0.1, 0.2) for name in names}, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
