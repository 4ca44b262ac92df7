"""Watch over the champion's score as known: after some bad intervals in a row the champion before it takes its place again."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from modyn_dagster.data.label_files import is_labelled
from modyn_dagster.evaluation.metrics.registry import score
from modyn_dagster.evaluation.promotion.evidence import Evidence, Outcomes
from modyn_dagster.evaluation.promotion.state import GateState, Watch
from modyn_dagster.spec.base import seconds_of
from modyn_dagster.spec.promotion.gate import PromotionSpec
from modyn_dagster.spec.promotion.limits import RollbackSpec
from modyn_dagster.spec.tasks.metrics import lower_is_better

MICROSECONDS: Final = 1_000_000
#: Intervals that one look judges at most; the oldest are passed over after a long silence of the stream.
_MOST: Final = 1000


class Watched(NamedTuple):
    """State after the closed intervals of a look, and the reason to roll back; None where there is none."""

    state: GateState
    reason: str | None


def earlier_champion(state: GateState, evidence: Evidence) -> int | None:
    """Return the newest champion before the present one that can be loaded; None where there is none."""
    return next((each for each in reversed(state.former) if evidence.load_problem(each) is None), None)


def watch_champion(rules: PromotionSpec, metric: str, state: GateState, evidence: Evidence) -> Watched:
    """Judge the intervals that have closed and matured since the last look.

    Intervals are counted from 1970 on and begin after the champion became the champion. During the cool-down bad intervals are
    counted, and nothing is rolled back.
    """
    block, reason = rules.rollback, None
    champion = state.champion
    if block is None or champion is None or evidence.time is None or state.since is None:
        return Watched(state, None)
    for begin, end in _closed(block, state, evidence.time):
        own = evidence.outcomes(champion, begin, end)
        if own is None:
            break
        bad = _judge(block, block.metric or metric, own, state, evidence, begin, end)
        n_bad = state.watch.n_bad if bad is None else state.watch.n_bad + 1 if bad else 0
        state = replace(state, watch=Watch(end, n_bad))
        reason = bad or reason
    quiet = state.quiet_until is not None and evidence.time < state.quiet_until
    if state.watch.n_bad < block.intervals or quiet or not state.former:
        return Watched(state, None)
    last = f"; {reason}" if reason else ""
    return Watched(state, f"its score was bad in {state.watch.n_bad} intervals of {block.every} in a row{last}")


def _closed(block: RollbackSpec, state: GateState, time: int) -> Iterator[tuple[int, int]]:
    length = seconds_of(block.every) * MICROSECONDS
    since = state.since or 0
    first = -(-since // length)
    if state.watch.judged_until is not None:
        first = max(first, state.watch.judged_until // length)
    last = time // length
    for number in range(max(first, last - _MOST), last):
        yield number * length, (number + 1) * length


def _judge(
    block: RollbackSpec, metric: str, own: Outcomes, state: GateState, evidence: Evidence, begin: int, end: int
) -> str | None:
    """Sentence about a bad score, an empty one for a good score, None for one that counts neither way."""
    value = _score(metric, own, block.min_samples)
    if value is None:
        return None
    span = f"from {np.datetime64(begin, 'us')} on"
    if block.below is not None:
        return f"{metric} {value:.6g} is below {block.below:g} {span}" if value < block.below else ""
    if block.above is not None:
        return f"{metric} {value:.6g} is above {block.above:g} {span}" if value > block.above else ""
    earlier = earlier_champion(state, evidence)
    before = None if earlier is None else evidence.outcomes(earlier, begin, end)
    bar = None if before is None else _score(metric, before, block.min_samples)
    if bar is None:
        return None
    drop, most = (value - bar if lower_is_better(metric) else bar - value), float(block.max_drop or 0)
    worse = f"{metric} {value:.6g} is worse than {bar:.6g} of the champion before by more than {most:g} {span}"
    return worse if drop > most else ""


def _score(metric: str, outcomes: Outcomes, min_samples: int) -> float | None:
    rows = np.flatnonzero(is_labelled(outcomes.truth))
    if len(rows) < min_samples:
        return None
    return score(metric, outcomes.outputs[rows], outcomes.truth[rows]).value
