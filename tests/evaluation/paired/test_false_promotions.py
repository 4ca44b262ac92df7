"""Rates at which tests promote a model that is not better, on simulated streams with fixed seeds.

Held against ``alpha`` is the upper end of the exact one-sided 95 % interval of the rate, so a rate near ``alpha`` would fail.
"""

import numpy as np
import pytest

from benchmarks.promotion_power import upper_end
from benchmarks.promotion_rates import bootstrap_promotions, mcnemar_promotions, samples_until_better, sequence_promotions
from benchmarks.promotion_streams import NULL_STREAMS, no_difference
from modyn_dagster.evaluation.paired.confidence_sequence import DifferenceState, log_evidence
from modyn_dagster.evaluation.paired.spending import alpha_of_candidate

ALPHA = 0.05
SOAK = pytest.mark.soak("laws-results")
UNBIASED = [name for name, (_, margin) in NULL_STREAMS.items() if margin == 0 and name != "skewed losses"]


@pytest.mark.parametrize("name", NULL_STREAMS)
@pytest.mark.parametrize(("streams", "n"), [(80, 400), pytest.param(2000, 3000, marks=SOAK)])
def test_a_sequence_that_is_looked_at_after_every_sample_promotes_wrongly_with_at_most_its_error(name, streams, n):
    stream, margin = NULL_STREAMS[name]
    found = sequence_promotions(stream, margin, streams=streams, n=n, alpha=ALPHA, seed=1)
    # Eighty streams cannot show more than that nothing is badly wrong: 0 promotions have an upper end of 0.037, 1 of 0.058.
    assert upper_end(found.false, found.streams) <= (ALPHA if streams > 1000 else 0.1), found


def test_a_sequence_at_a_margin_below_the_difference_would_be_caught():
    stream, margin = NULL_STREAMS["difference = margin"]
    found = sequence_promotions(stream, margin - 0.03, streams=30, n=3000, alpha=ALPHA, seed=1)
    assert found.claimed > 20


@pytest.mark.parametrize(("families", "n"), [(10, 60), pytest.param(200, 400, marks=SOAK)])
def test_a_gate_ever_promotes_one_of_a_hundred_equal_candidates_with_at_most_its_error(families, n):
    wrong = 0
    for family in range(families):
        rng = np.random.default_rng([5, family])
        for k in range(1, 101):
            run = DifferenceState().running(no_difference(rng, n).differences)
            if (log_evidence(run, 0.0) > -np.log(alpha_of_candidate(k, ALPHA))).any():
                wrong += 1
                break
    assert upper_end(wrong, families) <= (ALPHA if families > 100 else 0.4), wrong


@SOAK
@pytest.mark.parametrize("name", UNBIASED)
def test_mcnemar_with_twenty_looks_promotes_wrongly_with_at_most_its_error(name):
    stream, _ = NULL_STREAMS[name]
    found = mcnemar_promotions(stream, streams=1500, n=2000, alpha=ALPHA, seed=2)
    assert upper_end(found.false, found.streams) <= ALPHA, found


def test_looks_that_each_take_the_full_error_promote_too_often():
    spent, unspent = (
        mcnemar_promotions(no_difference, streams=100, n=1500, alpha=ALPHA, seed=3, looks=10, spends=spends)
        for spends in (True, False)
    )
    assert unspent.false > ALPHA * unspent.streams
    assert spent.false < unspent.false


@SOAK
@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_the_block_bootstrap_holds_its_error_on_a_correlated_stream_too(correlation):
    found = bootstrap_promotions(correlation=correlation, streams=600, n=400, alpha=ALPHA, seed=4)
    assert upper_end(found.false, found.streams) <= ALPHA, found


@SOAK
def test_blocks_that_are_short_against_the_dependence_would_be_caught():
    found = bootstrap_promotions(correlation=0.9, streams=150, n=400, alpha=ALPHA, seed=4, block=1)
    assert found.false > 0.1 * found.streams, found


def test_a_difference_that_is_there_is_found():
    samples = samples_until_better(0.05, 0.1, streams=60, most=4000, every=20, alpha=ALPHA, seed=6)
    assert np.isfinite(samples).mean() > 0.95
    assert np.median(samples) < 900
