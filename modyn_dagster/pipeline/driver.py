"""The state machine that replay and production share: decide until a decision fires or the data end.

Every step is one transaction that compares and sets the run's cursor and epoch, so two drivers cannot both take it.
"""

from dataclasses import dataclass
from typing import Final

from modyn_dagster.catalog.runs import RunRow, move_run
from modyn_dagster.catalog.triggers import TriggerRow, insert_trigger
from modyn_dagster.pipeline.platform import Platform, spec_of
from modyn_dagster.triggering import Decision, Stream, build_policy

#: Decisions that did not fire are committed together, at most this many.
_MOST_POINTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Step:
    """Where the run stands now; ``trigger`` is the one that just fired. ``at_end`` says that the data ended."""

    run: RunRow
    trigger: TriggerRow | None
    at_end: bool


def advance(platform: Platform, run: RunRow, stream: Stream) -> Step:
    """Decide about the stream after the run's cursor, up to and including the first decision that fires.

    Raises:
        StaleRun: another process moved the run meanwhile; nothing was committed.
    """
    policy = build_policy(spec_of(run).trigger)
    policy.load_state_dict(run.policy_state)
    cursor, fired = run.cursor, None
    for _ in range(_MOST_POINTS):
        point = policy.next_point(cursor, stream)
        if point is None:
            break
        decision = policy.decide(point)
        cursor = point
        if decision.fire:
            policy.triggered(decision.key)
            fired = decision
            break
    at_end = fired is None and point is None
    state = policy.state_dict()
    if cursor == run.cursor and state == run.policy_state:
        return Step(run, None, at_end)
    return _commit(platform, run, fired, at_end, cursor=cursor, policy_state=state)


def _commit(platform: Platform, run: RunRow, fired: Decision | None, at_end: bool, **moved: object) -> Step:
    with platform.transaction() as conn:
        run = move_run(conn, run, **moved)
        trigger = None
        if fired is not None:
            trigger = insert_trigger(
                conn,
                run.id,
                key=fired.key,
                point=run.cursor,
                reason=fired.reason,
                score=fired.score,
                threshold=fired.threshold,
            )
    return Step(run, trigger, at_end)
