"""Candidates that have passed and wait for a person: the newest alone, and in nobody's way."""

from dataclasses import replace

import numpy as np
from hypothesis import assume, given

from modyn_dagster.evaluation.promotion.state import Candidate, GateState, Trial
from modyn_dagster.evaluation.promotion.succession import crowned
from tests.evaluation.promotion.memory import MemoryEvidence, stream_of
from tests.evaluation.promotion.walks import WALKS, Walk, rules_of, sure, walked


@given(WALKS)
def test_of_the_candidates_that_have_passed_the_newest_waits_for_a_person_until_a_newer_one_passes(walk: Walk) -> None:
    assume(walk.rules.spec.approve == "manual")
    for look in walk.looks:
        if any(change.state == "champion" for change in look.changes):
            # Tests that have passed against another champion begin anew.
            continue
        rejected = {change.trigger for change in look.changes if change.state == "rejected"}
        passed = {each.trigger for each in look.before.candidates if each.state == "passed"}
        passed |= {change.trigger for change in look.changes if (change.verdict or {}).get("result") == "better"}
        waiting = [each.trigger for each in look.after.candidates if each.state == "passed"]
        assert waiting == sorted(passed - rejected)[-1:]
        assert {change.trigger for change in look.changes if change.state == "superseded"} >= passed - rejected - {*waiting}


def test_what_waits_for_a_person_holds_no_place_and_is_tested_no_more() -> None:
    stream = stream_of([80] * 6, [(0, 0.05), (0, 0.99), (2, 0.99), (3, 0.5)])
    walk = walked(sure(approve="manual", shadow={"max": 1}), stream)
    assert walk.moves(1) == ["candidate", "shadow", "passed", "superseded"]
    assert walk.moves(2) == ["candidate", "shadow", "passed", "superseded"]
    assert walk.moves(3) == ["candidate", "shadow", "passed"]
    assert walk.end.champion == 0
    [reason] = [each.reason for each in walk.changes if (each.trigger, each.state) == (1, "superseded")]
    assert reason == "the model of trigger 2, which is newer, has passed its test and waits for a person"
    last = [each for look in walk.looks[4:] for each in look.after.candidates]
    assert [each.state for each in last] == ["passed"] * len(last)
    assert len(set(map(str, last))) == 1


def test_an_older_candidate_that_is_undecided_is_tested_on_and_superseded_once_it_passes_after_a_newer_one() -> None:
    stream = stream_of([10] * 7, [(0, 0.5), (0, 0.5), (0, 0.99)])
    right = np.where(stream.batch < 3, stream.models[0].right, True)
    models = (replace(stream.models[0], right=stream.truth == 2), replace(stream.models[1], right=right), stream.models[2])
    walk = walked(sure(confidence=0.9, approve="manual"), replace(stream, models=models))
    assert walk.moves(2) == ["candidate", "shadow", "passed"]
    assert walk.moves(1) == ["candidate", "shadow", "superseded"]
    [verdict] = [each.verdict for each in walk.changes if (each.trigger, each.state) == (1, "superseded")]
    assert (verdict or {}).get("result") == "better"


def test_a_candidate_that_has_passed_waits_behind_the_tests_that_another_champion_interrupts() -> None:
    evidence = MemoryEvidence(stream_of([10] * 3, [(0, 0.5)] * 5), 2)
    trial = Trial(1, 2, 0, 0, None, 1, 0, None)

    def after(most: int) -> list[tuple[int, str]]:
        state = GateState(champion=1, former=(0,), seen=4, n_tests=3)
        state = replace(
            state, candidates=(Candidate(2, "shadow", trial), Candidate(3, "shadow", trial), Candidate(4, "passed", trial))
        )
        state, _ = crowned(rules_of(shadow={"max": most}).spec, state, 0, "a complaint", "ann", evidence)
        return [(each.trigger, each.state) for each in state.candidates]

    assert after(2) == [(2, "shadow"), (3, "shadow"), (4, "candidate")]
    assert after(3) == [(2, "shadow"), (3, "shadow"), (4, "shadow")]
