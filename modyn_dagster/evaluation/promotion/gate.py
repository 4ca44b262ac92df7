"""Gate of a run: one look at a batch turns evidence into changes of the states of models, by rules alone.

A model begins as a candidate, becomes a shadow when there is room, and is promoted once a test finds it better than the champion
by the margin, or then waits for a person. The champion stays until then. A look depends on the state and the evidence alone, so
a replay, a live run and a second try after a kill take the same looks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from modyn_dagster.evaluation.paired.verdict import PairedVerdict
from modyn_dagster.evaluation.promotion.deletions import without_withdrawn
from modyn_dagster.evaluation.promotion.evidence import Evidence
from modyn_dagster.evaluation.promotion.guardrails import broken_guardrail
from modyn_dagster.evaluation.promotion.rollback import earlier_champion, watch_champion
from modyn_dagster.evaluation.promotion.state import GATE, MICROSECONDS, ROLLBACK, Candidate, Change, GateState, Trial
from modyn_dagster.evaluation.promotion.succession import crowned, returned, under_test
from modyn_dagster.evaluation.promotion.trials import look, renewed
from modyn_dagster.spec.base import seconds_of
from modyn_dagster.spec.promotion.gate import PromotionSpec

_UNDECIDED: Final = "its shadow phase is over and the test is undecided"


@dataclass(frozen=True, slots=True)
class GateRules:
    """Rules of a gate: the block of the spec, and the metric that decides."""

    spec: PromotionSpec
    metric: str


def look_at_batch(rules: GateRules, state: GateState, since: int, evidence: Evidence) -> tuple[GateState, list[Change]]:
    """Look at a batch; returns the state afterwards and what changed, in order.

    Args:
        rules: of the gate.
        state: after the last look.
        since: ordinal of the batch of the last look; -1 before the first.
        evidence: after this batch.
    """
    state, changes = without_withdrawn(rules.spec, state, evidence)
    state = _with_new_models(rules, state, evidence, changes)
    state = _tested(rules, state, since, evidence, changes)
    watched = watch_champion(rules.spec, rules.metric, state, evidence)
    state = watched.state
    if watched.reason is not None:
        state = _rolled_back(rules, state, watched.reason, evidence, changes)
    return _with_shadows(rules, state, evidence, changes), changes


def _with_new_models(rules: GateRules, state: GateState, evidence: Evidence, changes: list[Change]) -> GateState:
    for trigger in sorted(each for each in evidence.models() if each > state.seen):
        state = replace(state, seen=trigger)
        if state.champion is None:
            state, more = crowned(rules.spec, state, trigger, "the first model", GATE, evidence)
            changes += more
            continue
        changes.append(Change(trigger, None, "candidate", f"trained; the champion is the model of trigger {state.champion}"))
        state = replace(state, candidates=(*state.candidates, Candidate(trigger)))
    return state


def _tested(rules: GateRules, state: GateState, since: int, evidence: Evidence, changes: list[Change]) -> GateState:
    """Look at every test; of several candidates that pass, the newest becomes the champion."""
    passed: list[tuple[int, PairedVerdict]] = []
    for each in state.candidates:
        if each.trial is None or each.trial.begun == evidence.batch or each.state == "passed":
            continue
        trial, verdict = look(rules.spec, rules.metric, each.trigger, each.trial, since, evidence)
        end = _ending(rules, each, trial, verdict, evidence)
        going_on = trial if verdict.result == "better" else renewed(rules.spec, trial, evidence)
        state = state.with_candidate(replace(each, trial=going_on))
        if end is not None:
            changes.append(Change(each.trigger, each.state, "rejected", end, verdict=verdict.to_json()))
            state = state.without(each.trigger)
        elif verdict.result == "better":
            passed.append((each.trigger, verdict))
    if not passed:
        return state
    if rules.spec.approve == "manual":
        return _offered(state, dict(passed), changes)
    trigger, verdict = passed[-1]
    state, more = crowned(rules.spec, state, trigger, verdict.reason, GATE, evidence, verdict)
    changes += more
    return state


def _offered(state: GateState, passed: Mapping[int, PairedVerdict], changes: list[Change]) -> GateState:
    """Let the newest candidate that has passed wait for a person; the older ones that have are superseded."""
    done = [each for each in state.candidates if each.state == "passed" or each.trigger in passed]
    newest = done[-1]
    for each in done:
        verdict = passed.get(each.trigger)
        numbers = None if verdict is None else verdict.to_json()
        if each is not newest:
            reason = f"the model of trigger {newest.trigger}, which is newer, has passed its test and waits for a person"
            changes.append(Change(each.trigger, each.state, "superseded", reason, verdict=numbers))
            state = state.without(each.trigger)
        elif verdict is not None:
            reason = f"{verdict.reason}; it waits for a person"
            changes.append(Change(each.trigger, each.state, "passed", reason, verdict=numbers))
            state = state.with_candidate(replace(each, state="passed"))
    return state


def _ending(rules: GateRules, candidate: Candidate, trial: Trial, verdict: PairedVerdict, evidence: Evidence) -> str | None:
    """Say why a candidate is rejected; None where it is not."""
    if verdict.result == "worse or equal":
        return verdict.reason
    if verdict.result == "better":
        broken = broken_guardrail(rules.spec, candidate.trigger, trial, evidence)
        if broken is not None:
            return f"it passed the test and breaks a guardrail: {broken}"
        problem = evidence.load_problem(candidate.trigger)
        return None if problem is None else f"it passed the test and cannot be loaded: {problem}"
    shadow = rules.spec.shadow
    if shadow.samples is not None and trial.n >= shadow.samples:
        return f"{_UNDECIDED} after {trial.n:,} pairs: {verdict.reason}"
    if shadow.for_ is None or trial.since is None or evidence.time is None:
        return None
    over = evidence.time - trial.since >= seconds_of(shadow.for_) * MICROSECONDS
    return f"{_UNDECIDED} after {shadow.for_}: {verdict.reason}" if over else None


def _rolled_back(rules: GateRules, state: GateState, reason: str, evidence: Evidence, changes: list[Change]) -> GateState:
    """Go back to the newest earlier champion that loads; without one the champion stays."""
    to = earlier_champion(state, evidence)
    if to is None:
        return state
    text = f"the model of trigger {state.champion} was rolled back: {reason}"
    state, more = returned(rules.spec, state, to, text, ROLLBACK, evidence)
    changes += more
    return state


def _with_shadows(rules: GateRules, state: GateState, evidence: Evidence, changes: list[Change]) -> GateState:
    """Begin tests where there is room, those of the newest candidates first; of those that wait the newest stays."""
    waiting = [each for each in reversed(state.candidates) if each.trial is None]
    room = rules.spec.shadow.max - state.n_tested
    for n_begun, each in enumerate(waiting):
        if state.champion is None:
            return state
        if n_begun < room:
            state = under_test(state, each.trigger, state.champion, evidence, changes)
        elif n_begun > max(room, 0):
            reason = f"it waited for a test, and the model of trigger {waiting[0].trigger} is newer"
            changes.append(Change(each.trigger, "candidate", "superseded", reason))
            state = state.without(each.trigger)
    return state
