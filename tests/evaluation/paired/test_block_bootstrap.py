"""Stationary bootstrap: rows, laws and what it refuses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.paired.block_bootstrap import block_length, bootstrap_verdict, stationary_rows


def scores(seed: int, quality: float, truth: np.ndarray) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=len(truth))
    return np.asarray(np.stack([np.zeros(len(truth)), quality * truth + noise], axis=1), np.float32)


TRUTH = np.random.default_rng(0).integers(0, 2, 200)


@given(st.integers(1, 40), st.integers(1, 5), st.floats(1, 20), st.integers(0, 2**32 - 1))
def test_rows_are_those_of_a_walk_that_goes_on_or_begins_anew(n, resamples, block, seed):
    rows = stationary_rows(n, resamples, block, np.random.default_rng(seed))
    # The same draws, one row at a time.
    rng = np.random.default_rng(seed)
    begins, starts = rng.random((resamples, n)) < 1 / block, rng.integers(0, n, (resamples, n))
    for r in range(resamples):
        row = 0
        for i in range(n):
            row = int(starts[r, i]) if i == 0 or begins[r, i] else (row + 1) % n
            assert rows[r, i] == row


def test_blocks_have_the_mean_length_that_is_asked_for():
    rows = stationary_rows(1000, 200, 8, np.random.default_rng(1))
    breaks = (np.diff(rows, axis=1) % 1000 != 1).mean()
    assert breaks == pytest.approx(1 / 8, rel=0.03)


@given(st.integers(1, 10**9))
def test_the_length_of_a_block_is_the_cube_root_rounded_up(n):
    length = block_length(n)
    assert (length - 1) ** 3 < n <= length**3


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
    # A single positive sample is missing from a third of the resamples; with blocks as long as the stream from hardly any.
    found = bootstrap_verdict("roc_auc", one, scores(2, 1.0, rare), rare, block=1, resamples=30)
    assert found.result == "undecided"


def test_means_of_losses_and_impossible_blocks_are_refused():
    one = scores(1, 1.0, TRUTH)
    with pytest.raises(ConfigError, match="test it with confidence_sequence"):
        bootstrap_verdict("accuracy", one, one, TRUTH)
    with pytest.raises(ConfigError, match="must be at least 1"):
        bootstrap_verdict("roc_auc", one, one, TRUTH, block=0)
