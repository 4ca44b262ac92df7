"""Stationary bootstrap: rows, laws and what it refuses."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchmarks.promotion_streams import equal_scores
from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.paired.block_bootstrap import block_length, bootstrap_verdict, circular_rows


def scores(seed: int, quality: float, truth: np.ndarray) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=len(truth))
    return np.asarray(np.stack([np.zeros(len(truth)), quality * truth + noise], axis=1), np.float32)


TRUTH = np.random.default_rng(0).integers(0, 2, 200)


def mean_score(outputs: np.ndarray, truth: np.ndarray) -> float:
    """Metric of a user that is linear in the samples, so its standard error is known in closed form."""
    return float(outputs[:, 1].mean())


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 50), st.integers(0, 2**32 - 1))
def test_rows_are_blocks_that_begin_anywhere_and_go_round(n, resamples, block, seed):
    rows = circular_rows(n, resamples, block, np.random.default_rng(seed))
    assert rows.shape == (resamples, n)
    assert ((rows >= 0) & (rows < n)).all()
    within = np.arange(1, n) % block != 0
    assert (np.diff(rows, axis=1)[:, within] % n == 1 % n).all()


def test_blocks_begin_at_every_row_alike():
    begins = circular_rows(7, 7000, 3, np.random.default_rng(1))[:, ::3]
    assert stats.chisquare(np.bincount(begins.ravel(), minlength=7)).pvalue > 1e-3


@given(st.integers(4, 10**9), st.floats(1e-9, 0.2))
def test_blocks_are_as_long_as_their_uncertainty_allows_and_never_shorter_than_the_cube_root(n, spent):
    length = block_length(n, spent)
    assert length**3 >= n
    blocks = -(-n // length)
    if (length - 1) ** 3 >= n:
        # A block more and the bounds would be nearer than they may be, one fewer and they would be too far away.
        wanted = next(q for q in range(2, 10**6) if stats.t.isf(spent, q - 1) <= 1.3 * stats.norm.isf(spent))
        assert blocks <= wanted
        assert length == -(-n // wanted)


@given(st.integers(4, 10**6), st.integers(1, 200))
def test_later_looks_have_more_blocks(n, look):
    assert block_length(n, 0.05 / (look * (look + 1))) >= block_length(n, 0.05 / ((look + 1) * (look + 2)))


@pytest.mark.parametrize(("n", "block", "look"), [(400, 40, 1), (200, 8, 3)])
def test_the_bounds_are_those_of_a_t_test_with_the_variance_of_all_circular_blocks(n, block, look):
    rng, truth = np.random.default_rng(n), np.zeros(n, np.int64)
    one, other = (np.stack([np.zeros(n), np.convolve(rng.normal(size=n + 9), np.ones(10), "valid")], axis=1) for _ in range(2))
    ours, theirs = one.astype(np.float32), other.astype(np.float32)
    metric, spent = f"{__name__}:mean_score", 0.05 / (look * (look + 1))
    found = bootstrap_verdict(metric, ours, theirs, truth, block=block, look=look, resamples=4000).bounds
    differences = ours[:, 1].astype(float) - theirs[:, 1]
    means = np.array([np.roll(differences, -begin)[:block].mean() for begin in range(n)])
    blocks = n // block
    error = (means.var() / blocks * blocks / (blocks - 1)) ** 0.5
    assert found is not None
    # Four standard errors of a standard deviation of 4,000 draws.
    assert found.upper - differences.mean() == pytest.approx(stats.t.isf(spent, blocks - 1) * error, rel=0.045)
    assert found.high - differences.mean() == pytest.approx(stats.t.isf(spent / 2, blocks - 1) * error, rel=0.045)
    assert found.upper - differences.mean() == pytest.approx(differences.mean() - found.lower)


@settings(max_examples=8)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["roc_auc", "f1", "calibration_error"]))
def test_exchanging_the_models_mirrors_the_bounds_and_the_same_seed_gives_the_same_verdict(seed, metric):
    one, other = scores(seed, 1.0, TRUTH), scores(seed + 1, 0.5, TRUTH)
    forth = bootstrap_verdict(metric, one, other, TRUTH, resamples=200, seed=3)
    back = bootstrap_verdict(metric, other, one, TRUTH, resamples=200, seed=3)
    assert forth == bootstrap_verdict(metric, one, other, TRUTH, resamples=200, seed=3)
    assert forth.difference is not None
    assert back.difference is not None
    assert forth.bounds is not None
    assert back.bounds is not None
    assert forth.difference == -back.difference
    assert [forth.bounds.lower, forth.bounds.low] == pytest.approx([-back.bounds.upper, -back.bounds.high])


def test_a_much_better_model_is_better_and_a_model_of_lower_error_too():
    good, poor = scores(1, 3.0, TRUTH), scores(2, 0.0, TRUTH)
    assert bootstrap_verdict("roc_auc", good, poor, TRUTH).result == "better"
    assert bootstrap_verdict("roc_auc", poor, good, TRUTH).result == "worse or equal"
    assert bootstrap_verdict("roc_auc", good, poor, TRUTH, margin=0.9).result == "worse or equal"
    sharp = np.stack([np.zeros(200), 20.0 * (1 - 2 * TRUTH)], axis=1).astype(np.float32)
    assert bootstrap_verdict("calibration_error", good, sharp, TRUTH).result == "better"


def test_later_looks_have_wider_bounds():
    one, other = scores(1, 1.0, TRUTH), scores(2, 1.0, TRUTH)
    first, third = (bootstrap_verdict("roc_auc", one, other, TRUTH, look=look).bounds for look in (1, 3))
    assert first is not None
    assert third is not None
    assert third.lower < first.lower < first.upper < third.upper


def test_what_is_undefined_is_undecided_with_the_reason():
    one = scores(1, 1.0, TRUTH)
    verdict = bootstrap_verdict("roc_auc", one, one, np.zeros(200, np.int64))
    assert (verdict.result, verdict.reason) == ("undecided", "the candidate has no roc_auc: all samples are of class 0")
    broken = one.copy()
    broken[0, 0] = np.nan
    assert bootstrap_verdict("roc_auc", one, broken, TRUTH).reason.startswith("the incumbent has no roc_auc: the model's outputs")
    assert bootstrap_verdict("roc_auc", one, one, TRUTH, min_samples=201).reason == "200 samples, at least 201 are needed"
    rare = np.zeros(200, np.int64)
    rare[7] = 1
    # A block of half of the stream holds a single positive sample in half of the draws, so every fourth resample has none.
    reason = bootstrap_verdict("roc_auc", one, scores(2, 1.0, rare), rare, block=100).reason
    assert 200 < int(reason.removeprefix("roc_auc is undefined in ").split()[0]) < 300
    assert bootstrap_verdict("roc_auc", one, one, TRUTH, block=101).reason == "200 samples make no two blocks of 101"
    assert bootstrap_verdict("roc_auc", one[:1], one[:1], TRUTH[:1]).reason == "1 samples make no two blocks of 1"


def test_samples_that_depend_on_each_other_for_longer_than_a_block_are_too_few():
    drawn = equal_scores(np.random.default_rng(3), 300, 0.97)
    parts = (drawn.ours, drawn.theirs, drawn.truth)
    found = bootstrap_verdict("roc_auc", *parts)
    assert re.fullmatch(
        "300 samples are few for how much they depend on each other: blocks of 43 should have [0-9]+", found.reason
    )
    assert found.result == "undecided"
    # Whoever names a length answers for it.
    assert bootstrap_verdict("roc_auc", *parts, block=43).bounds is not None
    # The same samples in another order do not depend on each other.
    mixed = np.random.default_rng(4).permutation(300)
    assert bootstrap_verdict("roc_auc", *(part[mixed] for part in parts)).bounds is not None


def test_means_of_losses_and_impossible_blocks_are_refused():
    one = scores(1, 1.0, TRUTH)
    with pytest.raises(ConfigError, match="test it with confidence_sequence"):
        bootstrap_verdict("accuracy", one, one, TRUTH)
    with pytest.raises(ConfigError, match="must be at least 1"):
        bootstrap_verdict("roc_auc", one, one, TRUTH, block=0)
