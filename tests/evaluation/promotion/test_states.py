"""Laws of a gate's states: which changes there are, who may be tested, and who is the champion."""

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.evaluation.promotion.gate import look_at_batch
from modyn_dagster.evaluation.promotion.state import GateState
from modyn_dagster.evaluation.promotion.succession import crowned
from tests.evaluation.promotion.memory import MemoryEvidence, stream_of
from tests.evaluation.promotion.walks import WALKS, Walk, rules_of, sure, walked

#: States that a model may have after another one. Only a withdrawn champion makes a waiting candidate the champion, only a
#: rollback or a withdrawn champion a retired model; nothing follows a rejection or a supersession.
EDGES: dict[str | None, set[str]] = {
    None: {"candidate", "champion"},
    "candidate": {"shadow", "superseded", "rejected", "champion"},
    "shadow": {"passed", "champion", "rejected", "superseded", "candidate"},
    "passed": {"champion", "rejected", "superseded", "candidate"},
    "champion": {"retired"},
    "retired": {"champion"},
    "rejected": set(),
    "superseded": set(),
}


@given(WALKS)
def test_models_change_along_the_allowed_edges_and_begin_where_they_were(walk: Walk) -> None:
    states: dict[int, str] = {}
    for change in walk.changes:
        assert change.before == states.get(change.trigger)
        assert change.state in EDGES[change.before]
        assert change.reason
        states[change.trigger] = change.state
    for each in walk.end.candidates:
        assert states[each.trigger] == each.state
    assert [trigger for trigger, state in states.items() if state == "champion"] == [
        each for each in [walk.end.champion] if each is not None
    ]


@given(WALKS)
def test_there_is_one_champion_as_soon_as_there_is_a_model(walk: Walk) -> None:
    withdrawn = {each.trigger for each in walk.stream.models if each.withdrawn < walk.stream.n_batches}
    for look in walk.looks:
        present = look.evidence.models()
        if look.after.champion is None:
            assert not look.after.candidates
            assert not present or withdrawn
        else:
            assert look.after.champion in present
        crowned = [change for change in look.changes if change.state == "champion"]
        retired = [change for change in look.changes if change.before == "champion"]
        assert len(crowned) - len(retired) == (look.after.champion is not None) - (look.before.champion is not None)


@given(WALKS)
def test_no_more_are_tested_than_allowed_and_one_waits_for_a_test_and_one_for_a_person_at_most(walk: Walk) -> None:
    for look in walk.looks:
        in_state = {state: [each for each in look.after.candidates if each.state == state] for state in EDGES}
        assert len(in_state["shadow"]) == look.after.n_tested <= walk.rules.spec.shadow.max
        assert len(in_state["candidate"]) <= 1
        assert len(in_state["passed"]) <= (walk.rules.spec.approve == "manual")
        assert sum(map(len, in_state.values())) == len(look.after.candidates)
        assert all((each.trial is None) == (each.state == "candidate") for each in look.after.candidates)
        # One that has passed keeps nobody from a test.
        if in_state["candidate"]:
            assert len(in_state["shadow"]) == walk.rules.spec.shadow.max


@given(WALKS)
def test_a_candidate_that_is_tested_is_never_displaced_by_a_newer_one(walk: Walk) -> None:
    for look in walk.looks:
        for each in look.before.candidates:
            if each.trial is None or look.after.candidate(each.trigger) == each:
                continue
            ends = [change for change in look.changes if change.trigger == each.trigger]
            champions = [change.trigger for change in look.changes if change.state == "champion"]
            match ends[-1].state if ends else "shadow":
                case "superseded":
                    # By a newer champion, or where it has passed itself, by a newer one that has passed and waits.
                    offered = [other.trigger for other in look.after.candidates if other.state == "passed"]
                    better = each.state == "passed" or (ends[-1].verdict or {}).get("result") == "better"
                    assert any(newer > each.trigger for newer in champions + offered * better)
                case "shadow":
                    after = look.after.candidate(each.trigger)
                    assert after is not None
                    assert after.trial is not None
                    assert champions or after.trial.number == each.trial.number
                case "candidate":
                    # It had passed against another champion, and there is no room for the next test.
                    assert (each.state, bool(champions)) == ("passed", True)
                    assert look.after.n_tested == walk.rules.spec.shadow.max
                case other:
                    assert other in ("passed", "champion", "rejected")


def test_tests_that_a_rollback_interrupts_begin_anew_before_one_that_waits() -> None:
    # Model 1 is promoted and rolled back while 2 and 3 are tested against it; 4 waits then.
    stream = stream_of([40] * 12, [(0, 0.5), (0, 0.9), (3, 0.9), (3, 0.9), (4, 0.9)])
    back = {"below": 1.0, "every": "1d", "intervals": 3, "min_samples": 5, "cool_down": "4d"}
    walk = walked(rules_of(min_samples=5, confidence=0.9, shadow={"max": 2}, rollback=back), stream)
    [look] = [each for each in walk.looks if any(change.actor == "rollback" for change in each.changes)]
    assert look.after.champion == 0
    assert [each.state for each in look.before.candidates] == ["shadow", "shadow", "candidate"]
    assert [each.trigger for each in look.after.candidates if each.trial is not None] == [2, 3]
    assert walk.end.n_tests >= 5


@given(WALKS)
def test_the_champion_stays_while_no_other_one_is_found_better(walk: Walk) -> None:
    for look in walk.looks:
        if look.before.champion == look.after.champion:
            continue
        for change in look.changes:
            if change.state == "champion" and change.actor == "gate" and change.before is not None:
                assert change.verdict is not None
                assert change.verdict["result"] == "better"


@given(WALKS)
def test_a_test_and_a_window_have_a_number_of_their_own(walk: Walk) -> None:
    begun = [change.reason for change in walk.changes if change.state == "shadow"]
    assert [reason.split()[1] for reason in begun] == [str(number + 1) for number in range(len(begun))]
    assert walk.end.n_tests == len(begun)


@given(WALKS, st.data())
def test_a_gate_that_is_written_and_read_at_any_batch_goes_on_to_the_same_end(walk: Walk, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(walk.looks) - 1))
    state = walk.looks[start].before
    for look in walk.looks[start:]:
        state = GateState.of_json(json.loads(json.dumps(state.to_json())))
        assert state == look.before
        state, changes = look_at_batch(walk.rules, state, look.batch - 1, MemoryEvidence(walk.stream, look.batch))
        assert [each.reason for each in changes] == [each.reason for each in look.changes]
        assert changes == look.changes
    assert state == walk.end


@given(WALKS)
def test_the_champion_is_never_a_candidate_and_every_model_of_the_gate_is_known_to_it(walk: Walk) -> None:
    for look in walk.looks:
        state = look.after
        models = [*state.former, *(each.trigger for each in state.candidates), state.champion]
        assert len(models) == len(set(models))
        assert all(each is None or each <= state.seen for each in models)


def test_a_model_that_was_promoted_before_the_first_look_at_it_is_no_candidate_then() -> None:
    stream = stream_of([0, 40, 40, 40], [(0, 0.5), (2, 0.6)])
    rules = sure()
    state, _ = look_at_batch(rules, GateState(), -1, MemoryEvidence(stream, 1))
    state, changes = crowned(rules.spec, state, 1, "it is needed", "ann", MemoryEvidence(stream, 1))
    assert [(each.trigger, each.state) for each in changes] == [(1, "champion"), (0, "retired")]
    after, changes = look_at_batch(rules, state, 1, MemoryEvidence(stream, 2))
    assert (after, changes) == (state, [])


def test_of_several_that_pass_in_one_look_the_newest_is_the_champion() -> None:
    walk = walked(sure(), stream_of([0, 80, 80], [(0, 0.05), (0, 0.99), (0, 0.99)]))
    assert walk.moves(1) == ["candidate", "shadow", "superseded"]
    assert walk.moves(2) == ["candidate", "shadow", "champion"]


def test_a_candidate_that_waits_is_superseded_by_a_newer_one_and_then_tested_no_more() -> None:
    walk = walked(sure(confidence=0.99, shadow={"max": 1}), stream_of([3] * 6, [(0, 0.5), (0, 0.5), (1, 0.5), (2, 0.5)]))
    assert walk.moves(2) == ["candidate", "superseded"]
    assert walk.moves(3) == ["candidate"]
    assert "the model of trigger 3 is newer" in next(each.reason for each in walk.changes if each.state == "superseded")


def test_a_candidate_that_cannot_be_loaded_is_no_champion_however_good_it_is() -> None:
    stream = stream_of([0, 80, 80], [(0, 0.05), (0, 0.99)])
    stream = replace(stream, models=(stream.models[0], replace(stream.models[1], lost=1)))
    walk = walked(sure(), stream)
    assert walk.moves(1) == ["candidate", "shadow", "rejected"]
    assert walk.changes[-1].reason == "it passed the test and cannot be loaded: model 1 is lost"
