"""Rate at which a whole gate ever promotes a candidate that is not better, on simulated streams with fixed seeds.

Held against ``alpha`` is the upper end of the exact one-sided 95 % interval of the rate, so a rate near ``alpha`` would fail.
"""

import numpy as np
import pytest

from benchmarks.promotion_gate import GATE_STREAMS, batches_until_promoted, gate_promotions
from benchmarks.promotion_power import upper_end
from benchmarks.promotion_runs import of_differences
from benchmarks.promotion_streams import classifiers
from tests.examples import examples

ALPHA = 0.05
#: Candidates one after the other, batches of each, and samples of a batch.
LONG = {"candidates": 100, "batches": 4, "size": 100}
SHORT = {"candidates": 12, "batches": 2, "size": 60}


@pytest.mark.soak("laws-results")
@pytest.mark.parametrize("name", [name for name, (_, _, tests) in GATE_STREAMS.items() if "confidence_sequence" in tests])
def test_a_gate_ever_promotes_one_of_a_hundred_candidates_wrongly_with_at_most_its_error(name) -> None:
    drawing, margin, _ = GATE_STREAMS[name]
    found = gate_promotions(drawing, margin, runs=100, test="confidence_sequence", seed=7, **LONG)
    # A hundred runs may have one false promotion: its upper end is 0.047.
    assert upper_end(found.false, found.streams) <= ALPHA, found


@pytest.mark.soak("laws-results")
@pytest.mark.parametrize("name", [name for name, (_, _, tests) in GATE_STREAMS.items() if "block_bootstrap" in tests])
def test_a_gate_ever_promotes_one_of_some_candidates_of_equal_scores_with_at_most_its_error(name) -> None:
    # Six candidates have six sevenths of the error.
    drawing, margin, _ = GATE_STREAMS[name]
    found = gate_promotions(drawing, margin, runs=100, test="block_bootstrap", seed=7, candidates=6, batches=2, size=200)
    # A hundred runs may have one false promotion.
    assert upper_end(found.false, found.streams) <= ALPHA, found


@pytest.mark.law
@pytest.mark.parametrize("name", ["no difference", "reversing drift"])
def test_a_few_runs_of_a_gate_promote_nothing_that_is_not_better(name) -> None:
    drawing, margin, _ = GATE_STREAMS[name]
    found = gate_promotions(drawing, margin, runs=examples(6), test="confidence_sequence", seed=7, **SHORT)
    assert found.false == 0


def test_a_gate_whose_candidates_are_better_than_the_margin_promotes_in_every_run() -> None:
    # The simulation would notice a gate that promotes by mistake: with a difference there are promotions, none of them false.
    found = gate_promotions(of_differences(classifiers(0.09, 0.1)), 0.0, runs=3, test="mcnemar", seed=7, **SHORT)
    assert (found.claimed, found.false) == (3, 0)
    wrong = gate_promotions(of_differences(_said_to_be_equal), 0.0, runs=3, test="mcnemar", seed=7, **SHORT)
    assert (wrong.claimed, wrong.false) == (3, 3)


def _said_to_be_equal(rng, n):
    return classifiers(0.09, 0.1)(rng, n)._replace(conditional=np.zeros(n))


def test_later_tests_take_longer_as_less_error_is_left_for_them() -> None:
    better = classifiers(0.2, 0.3)
    first, later = (batches_until_promoted(better, k, streams=8, size=40, most=30, seed=3) for k in (1, 50))
    assert np.isfinite(later).all()
    assert np.median(first) < np.median(later)
