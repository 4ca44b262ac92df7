"""Watch over the champion's score as known: after some bad intervals in a row the champion before it takes its place again."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from modyn_dagster.data.label_files import is_labelled
from modyn_dagster.evaluation.metrics.registry import score
from modyn_dagster.evaluation.promotion.evidence import Evidence, Outcomes, Pairs
from modyn_dagster.evaluation.promotion.guardrails import broken_metric
from modyn_dagster.evaluation.promotion.state import MICROSECONDS, GateState, Watch
from modyn_dagster.spec.base import seconds_of
from modyn_dagster.spec.promotion.gate import PromotionSpec
from modyn_dagster.spec.promotion.limits import RollbackSpec
from modyn_dagster.spec.tasks.metrics import lower_is_better

#: Intervals that one look judges at most, or that wait for labels; the oldest are passed over after a long silence of the stream.
_MOST: Final = 1000


class Watched(NamedTuple):
    """State after the closed intervals of a look, and the reason to roll back; None where there is none."""

    state: GateState
    reason: str | None


def earlier_champion(state: GateState, evidence: Evidence) -> int | None:
    """Return the newest champion before the present one that can be loaded; None where there is none."""
    return next((each for each in reversed(state.former) if evidence.load_problem(each) is None), None)


class _Interval(NamedTuple):
    """A closed interval of stream time, microseconds since 1970, and the champion's predictions in it."""

    begin: int
    end: int
    own: Outcomes


def watch_champion(rules: PromotionSpec, metric: str, state: GateState, evidence: Evidence) -> Watched:
    """Judge the intervals that have closed and matured since the last look.

    Intervals are counted from 1970 on and begin after the champion became the champion. One with fewer labels than it needs
    waits for them until a later one has enough: it then counts neither way. During the cool-down bad intervals are counted, and
    nothing is rolled back.
    """
    block, reason = rules.rollback, None
    if block is None or state.champion is None or evidence.time is None or state.since is None:
        return Watched(state, None)
    for interval in _labelled(block, state, evidence):
        bad = _judge(rules, block, block.metric or metric, interval, state, evidence)
        n_bad = state.watch.n_bad if bad is None else state.watch.n_bad + 1 if bad else 0
        state = replace(state, watch=Watch(interval.end, n_bad))
        reason = bad or reason
    quiet = state.quiet_until is not None and evidence.time < state.quiet_until
    if state.watch.n_bad < block.intervals or quiet or not state.former:
        return Watched(state, None)
    last = f"; {reason}" if reason else ""
    return Watched(state, f"its score was bad in {state.watch.n_bad} intervals of {block.every} in a row{last}")


def _labelled(block: RollbackSpec, state: GateState, evidence: Evidence) -> list[_Interval]:
    """Closed and mature intervals that were not judged, up to the last one with enough labels."""
    intervals: list[_Interval] = []
    last = 0
    for begin, end in _closed(block, state, evidence.time or 0):
        own = evidence.outcomes(state.champion if state.champion is not None else -1, begin, end)
        if own is None:
            break
        intervals.append(_Interval(begin, end, own))
        if np.count_nonzero(is_labelled(own.truth)) >= block.min_samples:
            last = len(intervals)
    return intervals[:last]


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
    rules: PromotionSpec, block: RollbackSpec, metric: str, interval: _Interval, state: GateState, evidence: Evidence
) -> str | None:
    """Sentence about a bad score, an empty one for a good score, None for one that counts neither way."""
    span = f"from {np.datetime64(interval.begin, 'us')} on"
    verdicts = [_bounded(block, metric, interval.own, span)]
    if block.compares_champions:
        earlier = earlier_champion(state, evidence)
        before = None if earlier is None else evidence.outcomes(earlier, interval.begin, interval.end)
        if before is not None:
            verdicts += _compared(rules, block, metric, _pairs(interval.own, before), span)
    known = [verdict for verdict in verdicts if verdict is not None]
    return next(filter(None, known), "") if known else None


def _bounded(block: RollbackSpec, metric: str, own: Outcomes, span: str) -> str | None:
    if block.below is None and block.above is None:
        return None
    rows = np.flatnonzero(is_labelled(own.truth))
    value = score(metric, own.outputs[rows], own.truth[rows]).value if len(rows) >= block.min_samples else None
    if value is None:
        return None
    if block.below is not None:
        return f"{metric} {value:.6g} is below {block.below:g} {span}" if value < block.below else ""
    return f"{metric} {value:.6g} is above {block.above:g} {span}" if value > float(block.above or 0) else ""


def _compared(rules: PromotionSpec, block: RollbackSpec, metric: str, pairs: Pairs, span: str) -> Iterator[str | None]:
    """Verdicts of the limits against the champion before; none with too few pairs."""
    if len(pairs) < block.min_samples:
        return
    if block.max_drop is not None:
        value, bar = (score(metric, outputs, pairs.truth).value for outputs in (pairs.candidate, pairs.incumbent))
        if value is not None and bar is not None:
            drop = value - bar if lower_is_better(metric) else bar - value
            worse = f"{metric} {value:.6g} is worse than {bar:.6g} of the champion before by more than {block.max_drop:g} {span}"
            yield worse if drop > block.max_drop else ""
    if block.guardrails:
        broken = broken_metric(rules.guardrails.metrics, pairs, block.min_samples, "the champion before")
        yield "" if broken is None else f"{broken}, {span}"


def _pairs(own: Outcomes, before: Outcomes) -> Pairs:
    """Predictions of both champions for the labelled samples that neither has seen."""
    _, mine, theirs = np.intersect1d(own.keys, before.keys, assume_unique=True, return_indices=True)
    known = is_labelled(own.truth[mine])
    mine, theirs = mine[known], theirs[known]
    slices = {name: values[mine] for name, values in own.slices.items()}
    return Pairs(own.truth[mine], own.outputs[mine], before.outputs[theirs], slices)
