"""Laws of samples in shards, by simulation with fixed seeds: those of the serial samplers, on the union of the shards.

All comparisons of this page together fail a right sampler with probability below 1e-6: each has the level ``LEVEL``, and there
are fewer than ``COMPARISONS``. Levels of single items are those of the exact binomial distribution.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binom, hypergeom, multivariate_hypergeom

from modyn_dagster.keys import KeyArray
from modyn_dagster.selection.time_biased import DRTBS, DTTBS, RTBS, TTBS, Sampler
from modyn_dagster.selection.time_biased.sharded.coordinator import deal
from modyn_dagster.selection.time_biased.sharded.sharded_sampler import ShardedSampler
from tests.examples import examples

FAMILY, COMPARISONS = 1e-6, 20_000
LEVEL = FAMILY / COMPARISONS

SOAK = pytest.mark.soak("distributed")

#: Sizes of batches, and the time before each: saturated throughout, never, and with transitions both ways.
STREAMS: dict[str, tuple[list[int], list[float]]] = {
    "all transitions": ([12, 8, 6, 0, 0, 0, 3, 9, 6], [1.0] * 9),
    "saturated": ([6, 6, 6, 6, 6], [1.0] * 5),
    "unsaturated": ([3, 2, 3, 1, 2], [1.0] * 5),
    "both transitions": ([12, 0, 0, 3, 0, 0, 0, 9, 0], [1.0] * 9),
    "huge batches": ([2, 300, 0, 1, 0, 0, 200, 0], [1.0] * 8),
    "real-valued times": ([5, 9, 1, 0, 8, 2, 2], [9.0, 0.3, 0.01, 2.5, 1.7, 0.0, 0.6]),
    "single items": ([1] * 12, [0.37] * 12),
    "fading below one item": ([4, 0, 0, 0, 1], [1.0, 4.0, 2.0, 0.5, 0.5]),
    "fading": ([6] + [0] * 5, [1.0] * 6),
}

#: Parts of a batch on three shards, by the number of the batch; None is the layout of ``update``.
Layout = Callable[[KeyArray, int], Sequence[KeyArray]]
LAYOUTS: dict[str, Layout | None] = {
    "even": None,
    "uneven": lambda keys, ordinal: np.split(keys, [min(1, len(keys)), min(3, len(keys))]),
    "one empty": lambda keys, ordinal: [keys[::2], keys[:0], keys[1::2]],
    "all in one": lambda keys, ordinal: [keys[:0], keys, keys[:0]],
    "moved": lambda keys, ordinal: [keys if ordinal % 3 == shard else keys[:0] for shard in range(3)],
}


def fed(sampler: Sampler, stream: tuple[list[int], list[float]], layout: Layout | None = None) -> Sampler:
    sizes, elapsed = stream
    ends = np.cumsum(sizes)
    for ordinal, (end, n, time) in enumerate(zip(ends, sizes, elapsed, strict=True)):
        keys = np.arange(end - n, end, dtype=np.uint64)
        if layout is None:
            sampler.update(keys, time)
        else:
            assert isinstance(sampler, ShardedSampler)
            sampler.update_parts(layout(keys, ordinal), time)
    return sampler


def weights(stream: tuple[list[int], list[float]], decay: float) -> npt.NDArray[np.float64]:
    """The decayed weight of each item in the end."""
    sizes, elapsed = stream
    ages = [sum(elapsed[i + 1 :]) for i in range(len(sizes))]
    return np.repeat(np.exp(-decay * np.array(ages)), sizes)


def assert_chances(
    make: Callable[[int], Sampler],
    expected: npt.NDArray[np.float64],
    stream: tuple[list[int], list[float]],
    layout: Layout | None,
    runs: int,
) -> None:
    counts = np.zeros(len(expected), np.int64)
    for seed in range(runs):
        counts[fed(make(seed), stream, layout).sample().astype(np.int64)] += 1
    # The rounding of a chance of 1 is no doubt about it.
    chance = np.where(expected > 1 - 1e-12, 1.0, expected)
    tail = np.minimum(binom.cdf(counts, runs, chance), binom.sf(counts - 1, runs, chance))
    assert tail.min() >= LEVEL / 2, (tail.argmin(), counts[tail.argmin()] / runs, chance[tail.argmin()])


def assert_rtbs(stream: str, layout: str, n: int, decay: float, runs: int) -> None:
    weight = weights(STREAMS[stream], decay)
    expected = min(n, weight.sum()) / weight.sum() * weight
    assert_chances(lambda seed: DRTBS(n, decay, seed, shards=3), expected, STREAMS[stream], LAYOUTS[layout], runs)


@pytest.mark.law
@pytest.mark.parametrize(
    ("stream", "layout"),
    [
        ("all transitions", "uneven"),
        pytest.param("real-valued times", "moved", marks=SOAK),
        pytest.param("huge batches", "one empty", marks=SOAK),
    ],
)
def test_every_items_chance_is_its_weight_times_c_over_w_however_the_shards_are_filled(stream, layout):
    assert_rtbs(stream, layout, 10, 0.3, examples(150))


@pytest.mark.law
@SOAK
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize(("n", "decay"), [(10, 0.3), (4, 0.7)])
def test_every_items_chance_in_every_stream_and_layout(stream, layout, n, decay):
    assert_rtbs(stream, layout, n, decay, examples(200))


@pytest.mark.law
@SOAK
@pytest.mark.parametrize("shards", [1, 2, 5, 16])
@pytest.mark.parametrize("stream", ["both transitions", "real-valued times", "single items"])
def test_every_items_chance_is_the_same_for_every_number_of_shards(stream, shards):
    weight = weights(STREAMS[stream], 0.5)
    expected = min(6, weight.sum()) / weight.sum() * weight
    assert_chances(lambda seed: DRTBS(6, 0.5, seed, shards=shards), expected, STREAMS[stream], None, examples(200))


@pytest.mark.law
@pytest.mark.parametrize("layout", [pytest.param("uneven", marks=SOAK), "moved"])
def test_every_items_chance_in_ttbs_in_shards_is_q_times_its_weight(layout):
    q = 10 * (1 - math.exp(-0.3)) / 5.0
    stream = STREAMS["real-valued times"]
    expected = q * weights(stream, 0.3)
    assert_chances(lambda seed: DTTBS(10, 0.3, 5.0, seed, shards=3), expected, stream, LAYOUTS[layout], examples(100))


@pytest.mark.law
@SOAK
def test_the_expected_size_is_c_and_the_size_one_of_its_neighbours():
    """The smallest possible variance: C rounded up with the probability of its fraction."""
    stream, runs = STREAMS["both transitions"], examples(400)
    size = min(10.0, weights(stream, 0.3).sum())
    sizes = np.array([len(fed(DRTBS(10, 0.3, seed, shards=4), stream).sample()) for seed in range(runs)])
    assert set(sizes.tolist()) <= {math.floor(size), math.ceil(size)}
    larger = int((sizes == math.ceil(size)).sum())
    chance = size - math.floor(size)
    assert min(binom.cdf(larger, runs, chance), binom.sf(larger - 1, runs, chance)) >= LEVEL / 2


#: Small enough that whole samples can be counted: which items are in it together.
TINY = ([3, 0, 3, 2], [1.0, 0.8, 0.7, 1.0])


def assert_same_distribution(one: Counter[tuple[int, ...]], other: Counter[tuple[int, ...]]) -> None:
    """Every outcome and every pair of items is as frequent in one as in the other: an exact test, given how often in both."""
    n, n_other = one.total(), other.total()
    for counts, others in ((one, other), (_pairs(one), _pairs(other))):
        events = sorted(counts + others)
        found, total = (np.array([of[event] for event in events]) for of in (counts, counts + others))
        tail = np.minimum(hypergeom.cdf(found, n + n_other, total, n), hypergeom.sf(found - 1, n + n_other, total, n))
        assert tail.min() >= LEVEL / 2, (events[tail.argmin()], found[tail.argmin()], total[tail.argmin()])


def _pairs(outcomes: Counter[tuple[int, ...]]) -> Counter[tuple[int, ...]]:
    """Runs with each pair of items; an item alone is a pair with itself."""
    found = Counter[tuple[int, ...]]()
    for outcome, count in outcomes.items():
        for pair in combinations_with_replacement(outcome, 2):
            found[pair] += count
    return found


def outcomes(make: Callable[[int], Sampler], runs: int, first: int) -> Counter[tuple[int, ...]]:
    found = Counter[tuple[int, ...]]()
    for seed in range(first, first + runs):
        found[tuple(np.sort(fed(make(seed), TINY).sample()).tolist())] += 1
    return found


def assert_samples_are_those_of_the_serial_sampler(runs: int) -> None:
    serial = outcomes(lambda seed: RTBS(4, 0.4, seed), 4 * runs, 0)
    assert_same_distribution(serial, outcomes(lambda seed: DRTBS(4, 0.4, seed, shards=3), runs, 0))


@pytest.mark.law
def test_whole_samples_have_the_serial_distribution_in_shards():
    assert_samples_are_those_of_the_serial_sampler(examples(500))


@pytest.mark.law
@SOAK
@pytest.mark.parametrize("shards", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [2, 4, 7])
def test_whole_samples_have_one_distribution_for_every_number_of_shards(n, shards):
    runs = examples(1_000)
    serial = outcomes(lambda seed: RTBS(n, 0.4, seed), runs, 0)
    assert_same_distribution(serial, outcomes(lambda seed: DRTBS(n, 0.4, seed, shards=shards), runs, 0))


@pytest.mark.law
@SOAK
@pytest.mark.parametrize("shards", [1, 3, 8])
def test_whole_samples_of_ttbs_have_one_distribution_for_every_number_of_shards(shards):
    runs = examples(1_000)
    serial = outcomes(lambda seed: TTBS(4, 0.4, 2.0, seed), runs, 0)
    assert_same_distribution(serial, outcomes(lambda seed: DTTBS(4, 0.4, 2.0, seed, shards=shards), runs, 0))


@pytest.mark.law
def test_counts_are_dealt_by_the_multivariate_hypergeometric_distribution():
    sizes, k, runs, rng = [5, 0, 3, 2], 4, examples(1_000), np.random.default_rng(0)
    found = Counter(tuple(deal(rng, sizes, k)) for _ in range(runs))
    grid = np.stack(np.meshgrid(*[np.arange(size + 1) for size in sizes], indexing="ij"), axis=-1).reshape(-1, len(sizes))
    possible = grid[grid.sum(axis=1) == k]
    chance = multivariate_hypergeom.pmf(possible[:, [0, 2, 3]], [5, 3, 2], k)
    counts = np.array([found[tuple(counts.tolist())] for counts in possible])
    assert counts.sum() == runs
    tail = np.minimum(binom.cdf(counts, runs, chance), binom.sf(counts - 1, runs, chance))
    assert tail.min() >= LEVEL / 2


def assert_partial_items_move(runs: int) -> None:
    """Chances where another full item becomes the partial one again and again, from shards of different sizes."""
    assert_rtbs("fading", "uneven", 6, 0.25, runs)


def assert_shards_give_by_their_sizes(runs: int) -> None:
    """Chances where one shard has most items."""
    assert_rtbs("real-valued times", "uneven", 10, 0.3, runs)


@pytest.mark.law
@SOAK
@pytest.mark.parametrize("chances_hold", [assert_partial_items_move, assert_shards_give_by_their_sizes])
def test_every_items_chance_wherever_the_partial_item_comes_from(chances_hold):
    chances_hold(examples(500))


def test_a_sampler_that_is_wrong_is_seen():
    """Another rate, or one chance for all: both are told from the law."""
    runs = 500
    with pytest.raises(AssertionError):
        assert_chances(
            lambda seed: RTBS(10, 0.1, seed), weights(STREAMS["both transitions"], 0.3), STREAMS["both transitions"], None, runs
        )
    serial = outcomes(lambda seed: RTBS(4, 0.4, seed), runs, 0)
    with pytest.raises(AssertionError):
        assert_same_distribution(serial, outcomes(lambda seed: RTBS(4, 0.0, seed), runs, 0))
