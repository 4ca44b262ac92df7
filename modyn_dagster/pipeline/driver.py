"""The state machine that replay and production share: decide until a decision fires, the data end, or nothing is measured.

Every step is one transaction that compares and sets the run's cursor and epoch, so two drivers cannot both take it. It
commits the decisions with what they were taken from: trigger, decision rows, measurements and the ledger.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from time import monotonic
from typing import Final

import sqlalchemy as sa

from modyn_dagster.catalog.runs import RunRow, move_run
from modyn_dagster.catalog.triggers import TriggerRow, insert_trigger
from modyn_dagster.pipeline.deciding import Decided, Measure, Unmeasured, decide_onwards
from modyn_dagster.pipeline.plain import plain_number
from modyn_dagster.pipeline.platform import Platform, spec_of
from modyn_dagster.pipeline.policies import policy_of
from modyn_dagster.pipeline.transition import record_decided
from modyn_dagster.triggering import Stream

#: Decisions that did not fire are committed together: at most this many, and after at most so many seconds.
_MOST_POINTS: Final = 10_000
COMMIT_SECONDS: Final = 5.0


class Stop(Enum):
    """Why a step went no further."""

    FIRED = "a decision fired"
    AT_END = "the data ended"
    UNMEASURED = "nothing is measured at the next point yet"
    PAUSED = "there is more to decide"


@dataclass(frozen=True, slots=True)
class Step:
    """Where the run stands now, why it stopped there, and the trigger that just fired.

    ``point`` is the one at which something has to be measured first.
    """

    run: RunRow
    stop: Stop
    trigger: TriggerRow | None = None
    point: int | None = None


def advance(
    platform: Platform,
    run: RunRow,
    stream: Stream,
    measure: Measure,
    *,
    seconds: float = COMMIT_SECONDS,
    measures: bool = True,
    until: int | None = None,
) -> Step:
    """Decide about the stream after the run's cursor, up to and including the first decision that fires, or up to a key.

    It pauses, with all decisions so far committed, after ``seconds``; at least one decision is taken before. ``measures``
    says that ``measure`` does, and what it found is committed too.

    Raises:
        StaleRun: another process moved the run meanwhile; nothing was committed.
    """
    policy = policy_of(spec_of(run))
    policy.load_state_dict(run.policy_state)
    end, decided, point = monotonic() + seconds, list[Decided](), None
    stop = Stop.AT_END
    try:
        for each in decide_onwards(policy, run.cursor, stream, measure, until=until):
            decided.append(each)
            if each.decision.fire:
                stop = Stop.FIRED
            elif monotonic() > end or len(decided) == _MOST_POINTS:
                stop = Stop.PAUSED
                break
    except Unmeasured as unmeasured:
        stop, point = Stop.UNMEASURED, unmeasured.point
    # At the end of the data a policy may have learnt something, such as the time its ticks count from.
    state = policy.state_dict() if stop is Stop.AT_END else decided[-1].state if decided else run.policy_state
    if not decided and state == run.policy_state:
        return Step(run, stop, None, point)
    moved = {"cursor": decided[-1].point if decided else run.cursor, "policy_state": state}
    with platform.transaction() as conn:
        before, run = run, move_run(conn, run, **moved)
        record_decided(conn, before, decided, stream, measured=measures)
        trigger = _trigger_of(conn, run, decided)
    return Step(run, stop, trigger, point)


def _trigger_of(conn: sa.Connection, run: RunRow, decided: Sequence[Decided]) -> TriggerRow | None:
    if not decided or not decided[-1].decision.fire:
        return None
    decision = decided[-1].decision
    shown = {"reason": decision.reason, "score": plain_number(decision.score), "threshold": plain_number(decision.threshold)}
    return insert_trigger(conn, run.id, key=decision.key, point=run.cursor, **shown)
