"""The chance of every item to be in the sample, by simulation: within 4 sigma of the law, on several streams."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from modyn_dagster.selection.time_biased import BTBS, RTBS, TTBS, Sampler, UniformReservoir
from tests.examples import examples

RUNS = examples(1_500)

#: Sizes of batches, and the time before each.
STREAMS: dict[str, tuple[list[int], list[float]]] = {
    "saturated": ([6, 6, 6, 6, 6], [1.0] * 5),
    "unsaturated": ([3, 2, 3, 1, 2], [1.0] * 5),
    "empty batches": ([12, 0, 0, 3, 0, 0, 0, 9, 0], [1.0] * 9),
    "huge batches": ([2, 300, 0, 1, 0, 0, 200, 0], [1.0] * 8),
    "real-valued times": ([5, 9, 1, 0, 8, 2, 2], [9.0, 0.3, 0.01, 2.5, 1.7, 0.0, 0.6]),
    "single items": ([1] * 12, [0.37] * 12),
    "fading below one item": ([4, 0, 0, 0, 1], [1.0, 4.0, 2.0, 0.5, 0.5]),
}


def chances(make: Callable[[int], Sampler], sizes: list[int], elapsed: list[float], until: int) -> npt.NDArray[np.float64]:
    """Frequency of each item of the first ``until`` batches in the sample after them."""
    counts = np.zeros(sum(sizes[:until]))
    ends = np.cumsum(sizes)
    batches = [np.arange(end - n, end, dtype=np.uint64) for end, n in zip(ends, sizes, strict=True)]
    for seed in range(RUNS):
        sampler = make(seed)
        for keys, time in zip(batches[:until], elapsed, strict=False):
            sampler.update(keys, time)
        counts[sampler.sample().astype(np.int64)] += 1
    return counts / RUNS


def weights(sizes: list[int], elapsed: list[float], until: int, decay: float) -> npt.NDArray[np.float64]:
    """The decayed weight of each item after ``until`` batches."""
    ages = [sum(elapsed[i + 1 : until]) for i in range(until)]
    return np.repeat(np.exp(-decay * np.array(ages)), sizes[:until])


def assert_chances(found: npt.NDArray[np.float64], expected: npt.NDArray[np.float64]) -> None:
    """Within 4 sigma, a little more where many items are compared, and one run more for what has next to no chance."""
    sigma = np.sqrt(expected * (1 - expected) / RUNS) + 1e-12
    limit = 4 + math.sqrt(2 * math.log(max(1, len(expected) / 20)))
    assert (np.abs(found - expected) <= limit * sigma + 1 / RUNS).all()


@pytest.mark.law
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize(("n", "decay"), [(10, 0.3), (4, 0.7)])
def test_every_items_chance_in_rtbs_is_its_weight_times_c_over_w(stream, n, decay):
    sizes, elapsed = STREAMS[stream]
    weight = weights(sizes, elapsed, len(sizes), decay)
    found = chances(lambda seed: RTBS(n, decay, seed), sizes, elapsed, len(sizes))
    assert_chances(found, min(n, weight.sum()) / weight.sum() * weight)


@pytest.mark.law
@pytest.mark.parametrize("until", [2, 4, 7])
def test_the_law_of_rtbs_holds_at_every_time(until):
    sizes, elapsed = STREAMS["real-valued times"]
    weight = weights(sizes, elapsed, until, 0.5)
    found = chances(lambda seed: RTBS(8, 0.5, seed), sizes, elapsed, until)
    assert_chances(found, min(8, weight.sum()) / weight.sum() * weight)


def test_pairs_of_rtbs_items_of_one_batch_are_chosen_alike():
    together = np.zeros((12, 12))
    for seed in range(RUNS):
        sampler = RTBS(6, 0.4, seed)
        sampler.update(np.arange(4, dtype=np.uint64))
        sampler.update(np.arange(4, 12, dtype=np.uint64))
        sample = sampler.sample().astype(np.int64)
        together[np.ix_(sample, sample)] += 1 / RUNS
    pairs = together[4:, 4:][np.triu_indices(8, 1)]
    assert np.abs(pairs - pairs.mean()).max() < 4.5 * math.sqrt(pairs.mean() / RUNS)


@pytest.mark.law
@pytest.mark.parametrize("stream", ["saturated", "real-valued times"])
def test_every_items_chance_in_ttbs_is_q_times_its_weight(stream):
    sizes, elapsed = STREAMS[stream]
    found = chances(lambda seed: TTBS(10, 0.3, 5.0, seed), sizes, elapsed, len(sizes))
    q = 10 * (1 - math.exp(-0.3)) / 5.0
    assert_chances(found, q * weights(sizes, elapsed, len(sizes), 0.3))


@pytest.mark.law
def test_the_expected_size_of_ttbs_moves_towards_n():
    n, decay, batch = 20, 0.2, 10
    sizes = np.array([_sizes(TTBS(n, decay, batch, seed), batch, 12) for seed in range(RUNS)])
    t = np.arange(1, 13)
    expected = n + np.exp(-decay * t) * (0 - n)
    assert (np.abs(sizes.mean(axis=0) - expected) <= 4 * sizes.std(axis=0) / math.sqrt(RUNS)).all()


def test_every_items_chance_in_btbs_is_its_weight():
    sizes, elapsed = STREAMS["real-valued times"]
    found = chances(lambda seed: BTBS(0.3, seed), sizes, elapsed, len(sizes))
    assert_chances(found, weights(sizes, elapsed, len(sizes), 0.3))


@pytest.mark.law
@pytest.mark.parametrize("stream", ["saturated", "huge batches", "single items"])
def test_every_item_has_the_same_chance_in_a_uniform_reservoir(stream):
    sizes, elapsed = STREAMS[stream]
    found = chances(lambda seed: UniformReservoir(5, seed), sizes, elapsed, len(sizes))
    assert_chances(found, np.full(sum(sizes), min(1.0, 5 / sum(sizes))))


def _sizes(sampler: Sampler, batch: int, times: int) -> list[int]:
    found = []
    for time in range(times):
        sampler.update(np.arange(time * batch, (time + 1) * batch, dtype=np.uint64))
        found.append(len(sampler.sample()))
    return found
