"""Promotions, rejections and rollbacks that a person asks for. They move a gate by compare-and-set, and replays repeat them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, get_args

from modyn_dagster.catalog.results.promotions import PromotionRow, gate_of, list_promotions, move_gate, states_of
from modyn_dagster.catalog.runs import RunRow, get_run
from modyn_dagster.errors import RunError, UnknownName
from modyn_dagster.evaluation.promotion.gate import GateRules
from modyn_dagster.evaluation.promotion.state import Action, Change, GateState
from modyn_dagster.evaluation.promotion.succession import crowned, returned
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.promotion.evidence import BatchEvidence, RunModels
from modyn_dagster.pipeline.promotion.gate_walk import Repeat, crown, record_changes, rules_of
from modyn_dagster.pipeline.promotion.predictions import GatePredictions

#: Beginning of the reason of a rollback, for people who read it.
_BY_HAND: Final = "rolled back by hand: "


@dataclass(frozen=True, slots=True)
class Acted:
    """Result of an action: the run, and the events that it made, the person's own first; none where it was done already."""

    run: RunRow
    events: Sequence[PromotionRow]


def act(platform: Platform, run: RunRow, action: Action, trigger: int | None, actor: str, reason: str) -> Acted:
    """Promote or reject the model of a trigger of a run, or roll back to it.

    The model is loaded and verified before it becomes the champion. What is asked for twice is done once: where the model is the
    champion already, or rejected, nothing changes. A model has to be known to the gate.

    Args:
        platform: the project.
        run: with a gate.
        action: ``promote`` also approves; ``rollback`` without a trigger goes to the champion before.
        trigger: ordinal of the model's trigger.
        actor: name of the person, for the history.
        reason: one sentence, for the history.

    Raises:
        RunError: the run's spec has no ``promotion``, its gate has not looked at the model yet, this cannot be loaded, or there
            is nothing to reject or go back to.
        UnknownName: the run has no such model.
        StaleRun: somebody else moved the gate at the same moment; nothing was committed.
    """
    rules = rules_of(platform.recorded_spec(run))
    if rules is None:
        raise RunError(f"{run.title} has no gate: its spec has no `promotion`")
    view = platform.view_of(run)
    with platform.transaction() as conn:
        gate = gate_of(conn, run.id)
        before = list_promotions(conn, run.id)
    models = RunModels.read(platform, run, view)
    evidence = BatchEvidence(models, GatePredictions(ahead=False), gate.batch)
    state = GateState.of_json(gate.state)
    deed = Deed(action, _target(action, state, trigger, evidence, models, before), actor, reason)
    state, changes = _apply(rules, deed, state, evidence)
    with platform.transaction() as conn:
        current = get_run(conn, run.id, lock=True)
        if changes:
            move_gate(conn, gate, run.title, batch=gate.batch, state=state.to_json())
            record_changes(conn, models, changes, batch=gate.batch, time=evidence.time)
            current = crown(conn, current, models, state)
        return Acted(current, list_promotions(conn, run.id)[len(before) :])


def _target(
    action: Action,
    state: GateState,
    trigger: int | None,
    evidence: BatchEvidence,
    models: RunModels,
    events: Sequence[PromotionRow],
) -> int:
    title = models.run.title
    if state.champion is None:
        raise RunError(f"{title} has no champion yet; its gate looks at the first model with the next batch or evaluation")
    if trigger is None:
        if action != "rollback":
            raise RunError(f"{title}: name the model to {action}")
        if not state.former:
            raise RunError(f"{title}: the model of trigger {state.champion} is its first champion; there is none to go back to")
        trigger = state.former[-1]
    if trigger not in models.contexts:
        raise UnknownName(f"model of {title} with trigger", trigger, [str(each) for each in sorted(models.contexts)])
    if trigger not in evidence.models():
        # A replay repeats an action after a look, so it has to be about a model that the gate knew then.
        raise RunError(
            f"the gate of {title} has not looked at the model of trigger {trigger} yet; it does with the next evaluation after "
            f"the triggers of its batch are done: {action} it once `modyn-dagster model history {models.run.pipeline}` lists it"
        )
    if action == "rollback" and trigger != state.champion and trigger not in state.former:
        was = [event.ordinal for event in events if event.state == "champion"]
        known = ", ".join(map(str, state.former)) or "none"
        hint = "it is after the present one" if trigger in was else "it never was champion; promote it instead"
        raise RunError(f"{title} cannot go back to the model of trigger {trigger}: {hint} (champions before: {known})")
    if action == "reject" and trigger == state.champion:
        raise RunError(f"{title}: the model of trigger {trigger} is the champion; roll back, or promote another one")
    last = states_of(events).get(trigger)
    if action == "reject" and state.candidate(trigger) is None and last is not None and last.state != "rejected":
        raise RunError(f"{title}: the model of trigger {trigger} is {last.state}; only a candidate can be rejected")
    return trigger


@dataclass(frozen=True, slots=True)
class Deed:
    """Wish of a person: an action on the model of a trigger, with name and reason."""

    action: Action
    trigger: int
    actor: str
    reason: str


def _apply(rules: GateRules, deed: Deed, state: GateState, evidence: BatchEvidence) -> tuple[GateState, list[Change]]:
    """Return the state after a deed and what changed; nothing where it is done already."""
    found = state.candidate(deed.trigger)
    if deed.action == "reject":
        if found is None:
            return state, []
        rejected = Change(deed.trigger, found.state, "rejected", deed.reason, deed.actor, action=deed.action)
        return state.without(deed.trigger), [rejected]
    if deed.trigger == state.champion:
        return state, []
    problem = evidence.load_problem(deed.trigger)
    if problem is not None:
        raise RunError(f"the model of trigger {deed.trigger} cannot be loaded, so the champion stays: {problem}")
    if deed.action == "rollback":
        state, changes = returned(rules.spec, state, deed.trigger, _BY_HAND + deed.reason, deed.actor, evidence)
    else:
        state, changes = crowned(rules.spec, state, deed.trigger, deed.reason, deed.actor, evidence)
    return state, [replace(changes[0], action=deed.action), *changes[1:]]


def repeated_actions(platform: Platform, run: RunRow) -> Mapping[int, Sequence[Repeat]]:
    """Return the actions of people in the run whose manual triggers a replay repeats, by the batch after which it held."""
    source, rules = run.options.get("manual_of"), rules_of(platform.recorded_spec(run))
    if source is None or rules is None:
        return {}
    with platform.transaction() as conn:
        events = list_promotions(conn, int(source))
    repeats: dict[int, list[Repeat]] = {}
    for event in events:
        for action in get_args(Action):
            if event.action == action:
                reason = event.reason.removeprefix(_BY_HAND) if action == "rollback" else event.reason
                repeats.setdefault(event.batch, []).append(
                    partial(_repeat, rules, Deed(action, event.ordinal, event.actor, reason))
                )
    return repeats


def _repeat(rules: GateRules, deed: Deed, state: GateState, evidence: BatchEvidence) -> tuple[GateState, list[Change]]:
    if deed.trigger not in evidence.models():
        raise RunError(
            f"a person did `{deed.action}` with the model of trigger {deed.trigger}, which this replay has not trained"
        )
    return _apply(rules, deed, state, evidence)
