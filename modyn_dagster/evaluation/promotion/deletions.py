"""Changes of a gate after a deletion: of models that were withdrawn, and of one that was made again."""

from dataclasses import replace
from typing import Final

from modyn_dagster.evaluation.promotion.evidence import Evidence
from modyn_dagster.evaluation.promotion.rollback import earlier_champion
from modyn_dagster.evaluation.promotion.state import DELETION, Candidate, Change, GateState, Watch
from modyn_dagster.evaluation.promotion.succession import crowned, tested_anew
from modyn_dagster.spec.promotion.gate import PromotionSpec

_WITHDRAWN: Final = "a deletion has withdrawn its model"


def without_withdrawn(rules: PromotionSpec, state: GateState, evidence: Evidence) -> tuple[GateState, list[Change]]:
    """Leave models out that are not there any more.

    A withdrawn champion is followed by the newest earlier champion that loads, else by the newest candidate that loads.
    Candidates that were tried and do not load are rejected. Where none is left, the next model is the first again.
    """
    present, changes = evidence.models(), list[Change]()
    for each in state.candidates:
        if each.trigger not in present:
            changes.append(Change(each.trigger, each.state, "rejected", _WITHDRAWN, DELETION))
            state = state.without(each.trigger)
    state = replace(state, former=tuple(each for each in state.former if each in present))
    gone = state.champion
    if gone is None or gone in present:
        return state, changes
    changes.append(Change(gone, "champion", "retired", _WITHDRAWN, DELETION))
    heir = earlier_champion(state, evidence)
    state = replace(state, champion=None, since=None, watch=Watch())
    while heir is None and state.candidates:
        newest = state.candidates[-1]
        problem = evidence.load_problem(newest.trigger)
        if problem is None:
            heir = newest.trigger
            break
        reason = f"it is the newest candidate after the champion was withdrawn, and cannot be loaded: {problem}"
        changes.append(Change(newest.trigger, newest.state, "rejected", reason, DELETION))
        state = state.without(newest.trigger)
    if heir is None:
        return state, changes
    reason = f"the model of trigger {gone}, the champion, was withdrawn"
    state, more = crowned(rules, state, heir, reason, DELETION, evidence)
    return state, changes + more


def with_remade(rules: PromotionSpec, state: GateState, trigger: int, evidence: Evidence) -> tuple[GateState, list[Change]]:
    """Begin anew with the predictions of a model that a deletion has made again.

    Tests of it and against it begin anew, as their pairs were of the old model. Intervals in which the champion's score was bad
    count no more where one of the two was a score of the old model.
    """
    changes = list[Change]()
    made_again = "a deletion has made its model again"
    if trigger == state.champion:
        changes.append(Change(trigger, "champion", "champion", made_again, DELETION))
    compared = state.former if rules.rollback is not None and rules.rollback.compares_champions else ()
    if trigger in (state.champion, *compared):
        state = replace(state, watch=replace(state.watch, n_bad=0))
    interrupted = list[tuple[Candidate, str]]()
    for each in state.candidates:
        if each.trial is not None and trigger in (each.trigger, state.champion):
            reason = made_again if each.trigger == trigger else f"a deletion has made the champion, trigger {trigger}, again"
            interrupted.append((each, f"{reason}: its test begins anew"))
    return tested_anew(rules, state, interrupted, DELETION, evidence, changes), changes
