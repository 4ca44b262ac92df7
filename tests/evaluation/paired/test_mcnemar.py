"""McNemar's test, against scipy's binomial test; and the error that looks and candidates spend."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.paired.mcnemar import DiscordantState, mcnemar_p, mcnemar_verdict
from modyn_dagster.evaluation.paired.spending import alpha_of_candidate, spent_alpha

COUNTS = st.integers(0, 200)


@given(COUNTS, COUNTS)
def test_p_is_that_of_an_exact_binomial_test(wins, losses):
    expected = binomtest(wins, wins + losses, alternative="greater").pvalue if wins + losses else 1.0
    assert mcnemar_p(wins, losses) == pytest.approx(expected, rel=1e-9)


@given(COUNTS, COUNTS, st.integers(0, 500), st.integers(1, 20))
def test_verdicts_are_those_of_the_test_at_the_error_of_its_look(wins, losses, same, look):
    n = wins + losses + same
    state = DiscordantState(n, wins, losses, looks=look - 1)
    verdict, after = mcnemar_verdict(state, alpha=0.05)
    spent = 0.05 / (look * (look + 1))
    p, q = mcnemar_p(wins, losses), mcnemar_p(losses, wins)
    assert after.looks == look
    if n and min(abs(p - spent), abs(q - spent)) > 1e-9:
        assert (verdict.result == "better") == (p < spent)
        assert (verdict.result == "worse or equal") == (q < spent)


@given(COUNTS, COUNTS, st.integers(1, 500))
def test_bounds_of_the_opposite_comparison_are_mirrored_and_hold_the_difference(wins, losses, same):
    n = wins + losses + same
    one, other = (mcnemar_verdict(DiscordantState(n, *pair))[0] for pair in ((wins, losses), (losses, wins)))
    if wins + losses == 0:
        assert (one.result, one.bounds) == ("undecided", None)
        return
    assert one.bounds is not None
    assert other.bounds is not None
    assert one.difference is not None
    assert [one.bounds.lower, one.bounds.low] == pytest.approx([-other.bounds.upper, -other.bounds.high], abs=1e-9)
    assert one.bounds.low <= one.bounds.lower <= one.difference + 1e-12 <= one.bounds.upper + 2e-12 <= one.bounds.high + 3e-12


@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0])), st.integers(0, 50))
def test_the_counts_do_not_depend_on_how_the_stream_is_divided(differences, cut):
    whole = DiscordantState().updated(np.array(differences))
    parts = DiscordantState().updated(np.array(differences[:cut])).updated(np.array(differences[cut:]))
    assert parts == whole == DiscordantState.of_json(whole.to_json())
    assert (whole.n, whole.wins, whole.losses) == (len(differences), differences.count(1.0), differences.count(-1.0))


def test_the_bounds_of_shares_are_those_of_clopper_and_pearson():
    verdict, _ = mcnemar_verdict(DiscordantState(100, wins=12, losses=3), alpha=0.2)
    # The interval at twice the error has the one-sided bounds as its ends.
    expected = binomtest(12, 15).proportion_ci(confidence_level=1 - 2 * 0.1)
    assert verdict.bounds is not None
    assert verdict.bounds.lower == pytest.approx(0.15 * (2 * expected.low - 1))
    assert verdict.bounds.upper == pytest.approx(0.15 * (2 * expected.high - 1))
    assert verdict.reason.endswith("; 12 of 15 differing predictions are right, p = 0.0176 at look 1")


def test_a_margin_other_losses_and_too_few_samples_are_told():
    with pytest.raises(ConfigError, match="use confidence_sequence"):
        mcnemar_verdict(DiscordantState(10, 5, 1), margin=0.01)
    with pytest.raises(ConfigError, match="mcnemar tests the accuracy alone"):
        DiscordantState().updated(np.array([0.5]))
    verdict, state = mcnemar_verdict(DiscordantState(10, 9, 0), min_samples=20)
    assert (verdict.result, verdict.reason, state.looks) == ("undecided", "10 samples, at least 20 are needed", 1)


def test_looks_and_candidates_spend_no_more_than_the_whole_error():
    shares = [Fraction(1, k * (k + 1)) for k in range(1, 200)]
    assert sum(shares) == 1 - Fraction(1, 200)
    assert [spent_alpha(0.05, k) for k in range(1, 200)] == pytest.approx([0.05 * float(share) for share in shares])
    assert alpha_of_candidate(3, 0.1) == spent_alpha(0.1, 3)
    for alpha, k in ((0.0, 1), (1.0, 1), (0.05, 0)):
        with pytest.raises(ConfigError):
            spent_alpha(alpha, k)
