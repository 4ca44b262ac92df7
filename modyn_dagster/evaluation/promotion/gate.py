"""Gate of a run: one look at a batch turns evidence into changes of the states of models, by rules alone.

A model begins as a candidate, becomes a shadow when there is room, and is promoted once a test finds it better than the champion
by the margin. The champion stays until then. A look depends on the state and the evidence alone, so a replay, a live run and a
second try after a kill take the same looks.
"""

from dataclasses import dataclass, replace
from typing import Final

from modyn_dagster.evaluation.paired.verdict import PairedVerdict
from modyn_dagster.evaluation.promotion.evidence import Evidence
from modyn_dagster.evaluation.promotion.guardrails import broken_guardrail
from modyn_dagster.evaluation.promotion.rollback import MICROSECONDS, watch_champion
from modyn_dagster.evaluation.promotion.state import DELETION, GATE, ROLLBACK, Candidate, Change, GateState, Trial, Watch
from modyn_dagster.evaluation.promotion.trials import begin_trial, look
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
    changes: list[Change] = []
    state = _without_withdrawn(state, evidence, changes)
    state = _with_new_models(state, evidence, changes)
    state = _tested(rules, state, since, evidence, changes)
    watched = watch_champion(rules.spec, rules.metric, state, evidence)
    state = watched.state
    if watched.reason is not None:
        state = _rolled_back(rules, state, watched.reason, evidence, changes)
    return _with_shadows(rules, state, evidence, changes), changes


def crowned(
    state: GateState, trigger: int, reason: str, actor: str, evidence: Evidence, verdict: PairedVerdict | None = None
) -> tuple[GateState, list[Change]]:
    """Make a model the champion: the one before retires, older candidates are superseded, and tests of newer ones begin anew."""
    old, found = state.champion, state.candidate(trigger)
    before = found.state if found is not None else "retired" if trigger in state.former else None
    changes = [Change(trigger, before, "champion", reason, actor, None if verdict is None else verdict.to_json())]
    if old is not None:
        changes.append(Change(old, "champion", "retired", f"the model of trigger {trigger} is the champion now", actor))
    former = tuple(each for each in state.former if each != trigger)
    state = state.without(trigger)
    for each in state.candidates:
        if each.trigger < trigger:
            reason = f"the model of trigger {trigger}, which is newer, is the champion now"
            changes.append(Change(each.trigger, each.state, "superseded", reason, actor))
            state = state.without(each.trigger)
        elif each.trial is not None:
            if each.state != "candidate":
                again = f"there is another champion: its test begins anew against trigger {trigger}"
                changes.append(Change(each.trigger, each.state, "candidate", again, actor))
            state = state.with_candidate(Candidate(each.trigger))
    former = former if old is None else (*former, old)
    return replace(state, champion=trigger, since=evidence.time, former=former, watch=Watch()), changes


def returned(
    rules: GateRules, state: GateState, to: int, reason: str, actor: str, evidence: Evidence
) -> tuple[GateState, list[Change]]:
    """Go back to an earlier champion; those after it retire, and a cool-down begins."""
    kept = state.former[: state.former.index(to)] if to in state.former else state.former
    state, changes = crowned(state, to, reason, actor, evidence)
    return replace(state, former=kept, quiet_until=_quiet_until(rules, evidence)), changes


def _quiet_until(rules: GateRules, evidence: Evidence) -> int | None:
    if rules.spec.rollback is None or evidence.time is None:
        return None
    return evidence.time + seconds_of(rules.spec.rollback.cool_down) * MICROSECONDS


def _without_withdrawn(state: GateState, evidence: Evidence, changes: list[Change]) -> GateState:
    present = evidence.models()
    reason = "a deletion has withdrawn its model"
    for each in state.candidates:
        if each.trigger not in present:
            changes.append(Change(each.trigger, each.state, "rejected", reason, DELETION))
            state = state.without(each.trigger)
    state = replace(state, former=tuple(each for each in state.former if each in present))
    if state.champion is None or state.champion in present:
        return state
    gone = Change(state.champion, "champion", "retired", reason, DELETION)
    heir = next((each for each in reversed(state.former) if evidence.load_problem(each) is None), None)
    if heir is None:
        # The newest candidate is all there is; without one, the next model is the first again.
        heir = max((each.trigger for each in state.candidates), default=None)
    state = replace(state, champion=None, since=None, watch=Watch())
    changes.append(gone)
    if heir is None:
        return state
    state, more = crowned(state, heir, f"the model of trigger {gone.trigger}, the champion, was withdrawn", DELETION, evidence)
    changes += more
    return state


def _with_new_models(state: GateState, evidence: Evidence, changes: list[Change]) -> GateState:
    for trigger in sorted(each for each in evidence.models() if each > state.seen):
        state = replace(state, seen=trigger)
        if state.champion is None:
            state, more = crowned(state, trigger, "the first model", GATE, evidence)
            changes += more
            continue
        changes.append(Change(trigger, None, "candidate", f"trained; the champion is the model of trigger {state.champion}"))
        state = replace(state, candidates=(*state.candidates, Candidate(trigger)))
    return state


def _tested(rules: GateRules, state: GateState, since: int, evidence: Evidence, changes: list[Change]) -> GateState:
    """Look at every test; of several candidates that pass, the newest becomes the champion."""
    passed: list[tuple[int, PairedVerdict]] = []
    for each in state.candidates:
        if each.trial is None or each.state == "passed":
            continue
        trial, verdict = look(rules.spec, rules.metric, each.trigger, each.trial, since, evidence)
        state = state.with_candidate(replace(each, trial=trial))
        end = _ending(rules, each, trial, verdict, evidence)
        if end is not None:
            changes.append(Change(each.trigger, each.state, "rejected", end, verdict=verdict.to_json()))
            state = state.without(each.trigger)
        elif verdict.result == "better":
            passed.append((each.trigger, verdict))
    if not passed:
        return state
    if rules.spec.approve == "manual":
        for trigger, verdict in passed:
            reason = f"{verdict.reason}; it waits for a person"
            changes.append(Change(trigger, "shadow", "passed", reason, verdict=verdict.to_json()))
            [found] = [each for each in state.candidates if each.trigger == trigger]
            state = state.with_candidate(replace(found, state="passed"))
        return state
    trigger, verdict = passed[-1]
    state, more = crowned(state, trigger, verdict.reason, GATE, evidence, verdict)
    changes += more
    return replace(state, quiet_until=_quiet_until(rules, evidence))


def _ending(rules: GateRules, candidate: Candidate, trial: Trial, verdict: PairedVerdict, evidence: Evidence) -> str | None:
    """Say why a candidate is rejected; None where it is not."""
    if verdict.result == "worse or equal":
        return verdict.reason
    if verdict.result == "better":
        broken = broken_guardrail(rules.spec, candidate.trigger, trial, evidence)
        return None if broken is None else f"it passed the test and breaks a guardrail: {broken}"
    shadow = rules.spec.shadow
    if shadow.samples is not None and trial.n >= shadow.samples:
        return f"{_UNDECIDED} after {trial.n:,} pairs: {verdict.reason}"
    if shadow.for_ is None or trial.since is None or evidence.time is None:
        return None
    over = evidence.time - trial.since >= seconds_of(shadow.for_) * MICROSECONDS
    return f"{_UNDECIDED} after {shadow.for_}: {verdict.reason}" if over else None


def _rolled_back(rules: GateRules, state: GateState, reason: str, evidence: Evidence, changes: list[Change]) -> GateState:
    """Go back to the newest earlier champion that loads; without one the champion stays."""
    for to in reversed(state.former):
        if evidence.load_problem(to) is None:
            text = f"the model of trigger {state.champion} was rolled back: {reason}"
            state, more = returned(rules, state, to, text, ROLLBACK, evidence)
            changes += more
            return state
    return state


def _with_shadows(rules: GateRules, state: GateState, evidence: Evidence, changes: list[Change]) -> GateState:
    """Begin tests where there is room, those of the newest candidates first; of those that wait the newest stays."""
    waiting = [each for each in reversed(state.candidates) if each.trial is None]
    room = rules.spec.shadow.max - (len(state.candidates) - len(waiting))
    for n_begun, each in enumerate(waiting):
        if state.champion is None:
            return state
        if n_begun < room:
            trial = begin_trial(state.n_tests + 1, state.champion, evidence)
            state = replace(state.with_candidate(Candidate(each.trigger, "shadow", trial)), n_tests=trial.number)
            reason = f"test {trial.number} of the run begins, against the champion, trigger {trial.champion}"
            changes.append(Change(each.trigger, "candidate", "shadow", reason))
        elif n_begun > max(room, 0):
            reason = f"it waited for a test, and the model of trigger {waiting[0].trigger} is newer"
            changes.append(Change(each.trigger, "candidate", "superseded", reason))
            state = state.without(each.trigger)
    return state
