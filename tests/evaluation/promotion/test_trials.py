"""Laws of a candidate's test: the pairs that enter it, its windows, its share of error, and the conditions of a decision."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from modyn_dagster.evaluation.paired.confidence_sequence import DifferenceState
from modyn_dagster.evaluation.paired.mcnemar import DiscordantState
from modyn_dagster.evaluation.promotion.state import Candidate, Trial
from tests.evaluation.promotion.memory import MemoryEvidence, stream_of
from tests.evaluation.promotion.walks import WALKS, Look, Walk, rules_of, sure, walked


def trials_of(walk: Walk) -> Iterator[tuple[Look, Candidate, Trial]]:
    """All undecided tests after each look."""
    for look in walk.looks:
        for each in look.after.candidates:
            if each.state == "shadow" and each.trial is not None:
                yield look, each, each.trial


def entered(walk: Walk, candidate: int, trial: Trial, since: int, until: int) -> np.ndarray:
    """Differences of the accuracies of the pairs that entered after a batch and up to another one, sample by sample."""
    stream = walk.stream
    ours, theirs = (stream.model(each).right for each in (candidate, trial.champion))
    found = []
    for batch in range(since + 1, until + 1):
        for row, key in enumerate(stream.keys.tolist()):
            arrived_later = key > trial.after and stream.batch[row] > trial.begun
            if arrived_later and max(stream.labelled[row], stream.batch[row] + stream.maturity) == batch:
                found.append(float(ours[row]) - float(theirs[row]))
    return np.array(found)


@given(WALKS)
def test_each_pair_enters_a_test_once_when_it_is_mature_and_has_a_label(walk: Walk) -> None:
    for look, each, trial in trials_of(walk):
        assert trial.n == len(entered(walk, each.trigger, trial, trial.begun, look.batch))
        window = entered(walk, each.trigger, trial, trial.window_begun, look.batch)
        if not trial.numbers:
            assert len(window) == 0
        elif walk.rules.spec.test == "mcnemar":
            counts = DiscordantState.of_json(trial.numbers)
            assert (counts.n, counts.wins, counts.losses) == (len(window), (window > 0).sum(), (window < 0).sum())
        else:
            assert DifferenceState.of_json(trial.numbers) == DifferenceState().updated(window)


@given(WALKS)
def test_a_test_begins_after_the_batch_with_both_models_and_against_the_champion(walk: Walk) -> None:
    for look, each, trial in trials_of(walk):
        assert trial.champion == look.after.champion
        begun = MemoryEvidence(walk.stream, trial.begun)
        assert trial.after == begun.last_key
        assert {each.trigger, trial.champion} <= set(begun.models())


@given(WALKS)
def test_tests_share_the_error_and_windows_share_that_of_their_test(walk: Walk) -> None:
    alpha = 1 - walk.rules.spec.confidence
    for look in walk.looks:
        for change in look.changes:
            before = look.before.candidate(change.trigger)
            if change.verdict is not None and before is not None and before.trial is not None:
                k, j = before.trial.number, before.trial.window
                assert 1 - change.verdict["confidence"] == pytest.approx(alpha / (k * (k + 1)) / (j * (j + 1)), rel=1e-6)


@given(WALKS)
def test_nothing_is_promoted_on_fewer_pairs_or_labels_than_the_rules_ask_for(walk: Walk) -> None:
    spec = walk.rules.spec
    for look in walk.looks:
        for change in look.changes:
            before = look.before.candidate(change.trigger)
            if change.verdict is not None and change.verdict["result"] != "undecided" and before is not None:
                assert before.trial is not None
                covered = look.evidence.coverage(change.trigger, before.trial.after)
                assert change.verdict["n"] >= spec.min_samples
                assert covered >= spec.min_coverage


@given(WALKS)
def test_an_undecided_test_is_over_when_its_shadow_phase_is(walk: Walk) -> None:
    shadow = walk.rules.spec.shadow
    for look, _, trial in trials_of(walk):
        assert shadow.samples is None or trial.n < shadow.samples
        assert shadow.for_ is None or look.batch - trial.begun < int(shadow.for_[:-1])


def test_an_undecided_candidate_is_rejected_at_the_end_of_its_shadow_phase_and_the_champion_stays() -> None:
    for shadow, said in (({"for": "3d"}, "after 3d"), ({"samples": 20}, "after 21 pairs")):
        walk = walked(sure(confidence=0.999, shadow=shadow), stream_of([7] * 6, [(0, 0.6), (0, 0.6)]))
        assert walk.moves(1) == ["candidate", "shadow", "rejected"]
        assert said in walk.changes[-1].reason
        assert walk.end.champion == 0


def test_windows_follow_each_other_without_a_gap() -> None:
    # A window of two days ends with the look at the second day, and the next one begins with the third.
    walk = walked(rules_of(window="2d", confidence=0.9999), stream_of([10] * 8, [(0, 0.6), (0, 0.6)]))
    seen = [(trial.window, trial.window_begun, DifferenceState.of_json(trial.numbers).n) for _, _, trial in trials_of_after(walk)]
    assert seen == [(1, 0, 10), (2, 2, 0), (2, 2, 10), (3, 4, 0), (3, 4, 10), (4, 6, 0), (4, 6, 10)]
    assert walk.end.candidates[0].trial is not None
    assert walk.end.candidates[0].trial.n == 70


def trials_of_after(walk: Walk) -> Iterator[tuple[Look, Candidate, Trial]]:
    for look, each, trial in trials_of(walk):
        if look.batch > trial.begun:
            yield look, each, trial if trial.numbers else _with_none(trial)


def _with_none(trial: Trial) -> Trial:
    return replace(trial, numbers=DifferenceState().to_json())


def test_labels_that_come_after_a_window_enter_the_next_one() -> None:
    stream = stream_of([10] * 8, [(0, 0.6), (0, 0.6)], maturity=3)
    walk = walked(rules_of(window="2d", confidence=0.9999), stream)
    assert walk.end.candidates[0].trial is not None
    # Those of the batches 1 to 4 are mature by the last batch, 7.
    assert walk.end.candidates[0].trial.n == 40


def test_nothing_is_decided_below_min_coverage() -> None:
    stream = stream_of([40] * 8, [(0, 0.05), (0, 0.95)], never=0.5)
    assert walked(sure(), stream).end.champion == 1
    walk = walked(sure(min_coverage=0.9), stream)
    assert walk.end.champion == 0
    assert walk.end.candidates[0].state == "shadow"


def test_looks_without_enough_pairs_or_labels_spend_no_error_of_a_test_that_counts_looks() -> None:
    stream = stream_of([10] * 8, [(0, 0.5), (0, 0.5)])
    asked = rules_of(test="mcnemar", confidence=0.9999, min_samples=35)
    looks = [trial.looks for _, _, trial in trials_of(walked(asked, stream))]
    assert looks == [0, 0, 0, 0, 1, 2, 3, 4]


def test_the_bootstrap_looks_at_all_pairs_of_the_window_and_counts_its_looks() -> None:
    stream = stream_of([0, 60, 60, 60], [(0, 0.1), (0, 0.95)])
    walk = walked(rules_of("f1", test="block_bootstrap", min_samples=100), stream)
    [change] = [each for each in walk.changes if each.verdict is not None]
    assert change.verdict is not None
    assert (change.state, change.verdict["n"]) == ("champion", 120)
