"""Changes of the champion: by promotion, rollback or deletion, and what they mean for the candidates and their tests."""

from collections.abc import Sequence
from dataclasses import replace

from modyn_dagster.evaluation.paired.verdict import PairedVerdict
from modyn_dagster.evaluation.promotion.evidence import Evidence
from modyn_dagster.evaluation.promotion.state import MICROSECONDS, Candidate, Change, GateState, Watch
from modyn_dagster.evaluation.promotion.trials import begin_trial
from modyn_dagster.spec.base import seconds_of
from modyn_dagster.spec.promotion.gate import PromotionSpec


def crowned(
    rules: PromotionSpec,
    state: GateState,
    trigger: int,
    reason: str,
    actor: str,
    evidence: Evidence,
    verdict: PairedVerdict | None = None,
) -> tuple[GateState, list[Change]]:
    """Make a model the champion: the one before retires, and a cool-down begins.

    Older candidates are superseded. Tests of newer ones begin anew.
    """
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
    former = former if old is None else (*former, old)[-rules.former :]
    quiet = _quiet_until(rules, evidence)
    state = replace(state, champion=trigger, since=evidence.time, former=former, watch=Watch(), quiet_until=quiet)
    # A gate that is told of a model by this knows it: a champion is no candidate at the next look.
    state = replace(state, seen=max(state.seen, trigger))
    again = f"there is another champion, the model of trigger {trigger}: its test begins anew"
    interrupted = [(each, again) for each in state.candidates if each.trial is not None]
    return tested_anew(rules, state, interrupted, actor, evidence, changes), changes


def returned(
    rules: PromotionSpec, state: GateState, to: int, reason: str, actor: str, evidence: Evidence
) -> tuple[GateState, list[Change]]:
    """Go back to an earlier champion; those after it are none to go back to any more, and a cool-down begins."""
    kept = state.former[: state.former.index(to)] if to in state.former else state.former
    state, changes = crowned(rules, state, to, reason, actor, evidence)
    return replace(state, former=kept), changes


def _quiet_until(rules: PromotionSpec, evidence: Evidence) -> int | None:
    if rules.rollback is None or evidence.time is None:
        return None
    return evidence.time + seconds_of(rules.rollback.cool_down) * MICROSECONDS


def tested_anew(
    rules: PromotionSpec,
    state: GateState,
    interrupted: Sequence[tuple[Candidate, str]],
    actor: str,
    evidence: Evidence,
    changes: list[Change],
) -> GateState:
    """Begin tests anew against the present champion at once, so that none of them loses its place to a candidate that waits.

    A candidate that had passed held no place: where there is no room for it, it waits.

    Args:
        rules: of the gate.
        state: with the champion.
        interrupted: candidates whose tests were against another model or of one, and the reasons.
        actor: of the changes.
        evidence: after this batch.
        changes: which are appended to.
    """
    room = rules.shadow.max - state.n_tested + sum(each.state == "shadow" for each, _ in interrupted)
    for each, reason in sorted(interrupted, key=lambda pair: (pair[0].state == "passed", -pair[0].trigger)):
        changes.append(Change(each.trigger, each.state, "candidate", reason, actor))
        if room > 0 and state.champion is not None:
            state = under_test(state, each.trigger, state.champion, evidence, changes)
        else:
            state = state.with_candidate(Candidate(each.trigger))
        room -= 1
    return state


def under_test(state: GateState, trigger: int, champion: int, evidence: Evidence, changes: list[Change]) -> GateState:
    """Begin the next test of the gate."""
    trial = begin_trial(state.n_tests + 1, champion, evidence)
    reason = f"test {trial.number} of the run begins, against the champion, trigger {champion}"
    changes.append(Change(trigger, "candidate", "shadow", reason))
    return replace(state.with_candidate(Candidate(trigger, "shadow", trial)), n_tests=trial.number)
