"""Maximum mean discrepancy: brute force, unbiasedness, random features, memory, the median heuristic."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import pdist

from modyn_dagster.triggering.drift.bandwidth import element_of_rank
from modyn_dagster.triggering.drift.pair_sums import half_squares, pair_sums
from modyn_dagster.triggering.drift.score import permutation_p_value, split_indicators
from tests.examples import examples
from tests.triggering.drift.drifting import normal, score, statistic


def kernel(x: np.ndarray, y: np.ndarray, sigma: float) -> float:
    return float(np.exp(-np.square(x - y).sum() / (2 * sigma**2)))


def brute_force(reference: np.ndarray, current: np.ndarray, sigma: float) -> float:
    n, m = len(reference), len(current)
    within = sum(kernel(reference[i], reference[j], sigma) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    within += sum(kernel(current[i], current[j], sigma) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    return within - 2 * sum(kernel(x, y, sigma) for x in reference for y in current) / (n * m)


@pytest.mark.parametrize("block", [1, 3, 8, 20, 100])
@pytest.mark.parametrize(("n", "m"), [(2, 2), (7, 12), (12, 7)])
def test_every_block_size_gives_the_double_sum(n, m, block):
    reference, current = normal(0, n, m, 3, shift=0.4)
    expected = brute_force(reference, current, 1.3)
    assert score({"metric": "mmd", "bandwidth": 1.3, "block": block}, reference, current) == pytest.approx(expected, abs=1e-12)


def test_many_samples_in_single_precision_are_as_good():
    """Far from the origin, where products of float32 would lose most digits."""
    reference, current = normal(1, 500, 300, 4, shift=0.1)
    reference, current = (window.astype(np.float32) + np.float32(1_000) for window in (reference, current))
    spec = {"metric": "mmd", "bandwidth": 2.0, "block": 256}
    expected = score(spec, reference.astype(np.float64)[:, [3, 2, 1, 0]], current.astype(np.float64)[:, [3, 2, 1, 0]])
    distances = [
        np.square(a[:, None] - b[None]).sum(-1) for a, b in [(reference, reference), (current, current), (reference, current)]
    ]
    kernels = [np.exp(-d.astype(np.float64) / 8) for d in distances]
    exact = (kernels[0].sum() - 500) / (500 * 499) + (kernels[1].sum() - 300) / (300 * 299) - 2 * kernels[2].mean()
    assert score(spec, reference, current) == pytest.approx(exact, abs=2e-6)
    assert expected == pytest.approx(exact, abs=2e-6)


def test_an_outlier_does_not_spoil_single_precision():
    reference, current = (window.astype(np.float32) for window in normal(2, 400, 300, 2))
    expected = score({"metric": "mmd", "bandwidth": 1.0}, reference.astype(np.float64), current.astype(np.float64))
    with_outlier = np.concatenate([reference, np.full((1, 2), 1e6, np.float32)])
    n, value = len(reference), score({"metric": "mmd", "bandwidth": 1.0}, with_outlier, current)
    # The outlier's kernel with all others is 0: means inside and across shrink by known factors.
    kernels = [np.exp(-np.square(a[:, None] - b[None]).sum(-1) / 2) for a, b in [(reference, reference), (reference, current)]]
    inside, across = kernels[0].sum(dtype=np.float64) - n, kernels[1].sum(dtype=np.float64)
    change = inside / (n * (n + 1)) - inside / (n * (n - 1)) - 2 * across / 300 * (1 / (n + 1) - 1 / n)
    assert value == pytest.approx(expected + change, abs=1e-5)
    assert statistic({"metric": "mmd"}, with_outlier, current)["bandwidth"] == pytest.approx(
        statistic({"metric": "mmd"}, with_outlier.astype(np.float64), current.astype(np.float64))["bandwidth"], rel=1e-5
    )


@pytest.mark.law
@pytest.mark.parametrize("spec", [{}, {"random_features": 64}], ids=["exact", "random features"])
@pytest.mark.parametrize(("n", "m"), [(10, 10), (30, 8)])
def test_its_mean_is_zero_without_drift(spec, n, m):
    values = [score({"metric": "mmd", **spec}, *normal(seed, n, m, 2), seed=seed) for seed in range(examples(200))]
    assert abs(np.mean(values)) < 4 * np.std(values) / np.sqrt(len(values))
    assert min(values) < 0 < max(values)


def test_random_features_come_close_to_the_exact_value():
    reference, current = normal(3, 300, 200, 8, shift=0.5)
    exact = score({"metric": "mmd"}, reference, current)
    errors = {}
    for features in (64, 4096):
        spec = {"metric": "mmd", "random_features": features}
        errors[features] = np.sqrt(np.mean([(score(spec, reference, current, seed=seed) - exact) ** 2 for seed in range(12)]))
    assert errors[4096] < 0.05 * exact
    # The error falls with the root of the number of features: by 8, give or take.
    assert 4 < errors[64] / errors[4096] < 16


def test_all_splits_at_once_are_each_split_on_its_own():
    samples = np.random.default_rng(4).normal(size=(23, 2))
    members = split_indicators(14, 9, 6, np.random.default_rng(5))
    kernels = ((i, j, halves.exp_()) for i, j, halves in half_squares(torch.from_numpy(samples), 8, absent=-np.inf))
    found = pair_sums(kernels, members).difference(14, 9)
    expected = [brute_force(samples[split == 1], samples[split == 0], 1.0) for split in members.T]
    assert found == pytest.approx(np.array(expected), abs=1e-12)


@pytest.mark.parametrize("block", [4, 16, 99])
def test_no_more_of_the_matrix_is_held_than_one_block(block):
    samples = torch.from_numpy(np.random.default_rng(5).normal(size=(50, 2)))
    exact = -torch.cdist(samples, samples).square().triu_(1) / 2
    buffers, shapes = set(), []
    for i, j, values in half_squares(samples, block, absent=0.0):
        rows, columns = values.shape
        assert torch.allclose(values, exact[i : i + rows, j : j + columns])
        assert values.untyped_storage().nbytes() == 8 * min(block, 50) ** 2
        buffers.add(values.data_ptr())
        shapes.append(rows * columns)
    blocks = -(-50 // block)
    assert (len(buffers), len(shapes)) == (1, blocks * (blocks + 1) // 2)


MATRIX = arrays(np.float64, st.tuples(st.integers(1, 9), st.integers(1, 20)), elements=st.integers(-9, 9).map(float))


@given(st.lists(MATRIX, min_size=1), st.data())
def test_an_element_is_found_by_its_rank(parts, data):
    values = np.sort(np.concatenate([part.ravel() for part in parts]))
    rank = data.draw(st.integers(0, len(values) - 1))
    assert element_of_rank(parts, rank) == values[rank]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
def test_an_element_of_many_is_found_too(share):
    """Periodic ones among them: every n-th of these is no fair sample, and the bracket misses."""
    periodic = np.tile(np.concatenate([np.zeros(3), np.arange(40.0)]), 2_000)
    fair = np.random.default_rng(6).normal(size=(300, 400))
    for parts in ([periodic], [fair], [periodic, fair], [fair, fair[:, :7]]):
        values = np.sort(np.concatenate([part.ravel() for part in parts]))
        rank = int(share * (len(values) - 1))
        assert element_of_rank(parts, rank) == values[rank]


def test_the_bandwidth_is_the_median_distance_of_all_pooled_samples():
    reference, current = normal(6, 700, 500, 5)
    squared = np.sort(pdist(np.concatenate([reference, current]), "sqeuclidean"))
    expected = np.sqrt(squared[(len(squared) - 1) // 2] / 2)
    found = statistic({"metric": "mmd"}, reference, current)
    assert found["bandwidth"] == pytest.approx(expected, rel=1e-6)
    # Distances that the median has seen are used again: the same as with the bandwidth given.
    given = score({"metric": "mmd", "bandwidth": found["bandwidth"]}, reference, current)
    assert found["statistic"] == pytest.approx(given, abs=1e-7)
    in_blocks = score({"metric": "mmd", "bandwidth": found["bandwidth"], "block": 500}, reference, current)
    assert in_blocks == pytest.approx(given, abs=1e-7)


def test_of_many_samples_two_thousand_are_drawn_for_the_bandwidth():
    reference, current = normal(7, 3_000, 2_000, 2)
    found = {statistic({"metric": "mmd"}, reference, current, seed=seed)["bandwidth"] for seed in (1, 1, 2)}
    assert len(found) == 2
    expected = np.sqrt(np.median(pdist(np.concatenate([reference, current])[::3], "sqeuclidean")) / 2)
    assert list(found) == pytest.approx([expected] * 2, rel=0.05)


def test_where_most_samples_are_equal_the_bandwidth_is_that_of_the_others():
    reference, current = np.zeros((20, 1)), np.zeros((20, 1))
    current[0] = 2.0
    assert statistic({"metric": "mmd"}, reference, current)["bandwidth"] == pytest.approx(np.sqrt(4.0 / 2))


def test_the_p_value_counts_the_split_itself_and_ties():
    assert permutation_p_value([2.0, 1.0, 2.0 - 1e-12, 0.0]) == 0.5
    assert permutation_p_value([9.0, *range(9)]) == 0.1
    assert permutation_p_value(np.zeros((2, 7))).tolist() == [1.0, 1.0]


def test_splits_are_random_and_keep_the_sizes():
    members = split_indicators(5, 8, 300, np.random.default_rng(8))
    assert members.shape == (13, 301)
    assert members[:, 0].tolist() == [1] * 5 + [0] * 8
    assert set(members.sum(axis=0).tolist()) == {5}
    # A sample is in the reference of 5/13 of the splits: within five standard deviations.
    assert members[:, 1:].mean(axis=1) == pytest.approx(np.full(13, 5 / 13), abs=5 * np.sqrt(5 / 13 * 8 / 13 / 300))
