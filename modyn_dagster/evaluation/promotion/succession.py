"""Changes of the champion: by promotion, rollback or deletion, and what they mean for the candidates and their tests."""

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

    Older candidates are superseded. Tests of newer ones begin anew at once, so that none of these loses its place to a candidate
    that waits.
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
    interrupted = [each for each in reversed(state.candidates) if each.trial is not None]
    for each in interrupted:
        again = f"there is another champion, the model of trigger {trigger}: its test begins anew"
        changes.append(Change(each.trigger, each.state, "candidate", again, actor))
        state = under_test(state, each.trigger, trigger, evidence, changes)
    return state, changes


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


def under_test(state: GateState, trigger: int, champion: int, evidence: Evidence, changes: list[Change]) -> GateState:
    """Begin the next test of the gate."""
    trial = begin_trial(state.n_tests + 1, champion, evidence)
    reason = f"test {trial.number} of the run begins, against the champion, trigger {champion}"
    changes.append(Change(trigger, "candidate", "shadow", reason))
    return replace(state.with_candidate(Candidate(trigger, "shadow", trial)), n_tests=trial.number)
