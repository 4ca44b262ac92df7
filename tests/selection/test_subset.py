"""Subsets of positions: exact in size, and every one as likely as any other."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.selection.time_biased.sampler import uniform_positions
from tests.examples import examples


@given(st.integers(0, 700), st.data(), st.integers(0, 9))
def test_a_subset_has_exactly_the_size_asked_for(n, data, seed):
    k = data.draw(st.integers(0, n))
    found = uniform_positions(rng_for(seed), n, k)
    assert len(found) == len(np.unique(found)) == k
    assert k == 0 or (found.min() >= 0 and found.max() < n)


@pytest.mark.law
@pytest.mark.parametrize(("n", "k"), [(6, 1), (6, 3), (7, 5), (5, 4)])
def test_every_subset_is_equally_likely(n, k):
    rng, draws = rng_for(1), examples(10_000)
    counts = dict.fromkeys(combinations(range(n), k), 0)
    for _ in range(draws):
        counts[tuple(sorted(uniform_positions(rng, n, k).tolist()))] += 1
    expected = draws / len(counts)
    # Chi-squared with m = len(counts) - 1 degrees of freedom: mean m, variance 2 m.
    m = len(counts) - 1
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < m + 4 * (2 * m) ** 0.5 + 8


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.97])
def test_no_stretch_of_many_positions_is_favoured(share):
    n, draws = 4_000, 200
    rng, counts = rng_for(2), np.zeros(n)
    for _ in range(draws):
        counts[uniform_positions(rng, n, int(share * n))] += 1
    stretches = counts.reshape(20, -1).sum(axis=1)
    sigma = (n / 20 * draws * share * (1 - share)) ** 0.5
    assert np.abs(stretches - n / 20 * draws * share).max() < 4.5 * sigma
