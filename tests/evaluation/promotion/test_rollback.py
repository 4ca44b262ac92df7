"""Laws of the automatic rollback: bad intervals in a row, the cool-down, and the champion that comes back."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.evaluation.promotion.state import GateState
from modyn_dagster.evaluation.promotion.succession import crowned
from tests.evaluation.promotion.memory import DAY, MemoryEvidence, Stream, stream_of
from tests.evaluation.promotion.walks import WALKS, Walk, rules_of, sure, walked

BACK = {"below": 0.6, "every": "1d", "intervals": 2, "min_samples": 5, "cool_down": "1d"}


def failing(scores: list[float], size: int = 20) -> Stream:
    """Model 1 is promoted with the first batch after its own; afterwards it has these scores, day by day."""
    n_batches = len(scores) + 2
    stream = stream_of([0, 80] + [size] * len(scores), [(0, 0.05), (0, 1.0)])
    right = np.ones(len(stream.batch), bool)
    for day, share in enumerate(scores, 2):
        rows = np.flatnonzero(stream.batch == day)
        right[rows[round(share * len(rows)) :]] = False
    assert stream.n_batches == n_batches
    return replace(stream, models=(stream.models[0], replace(stream.models[1], right=right)))


def rolled_back(stream: Stream, **rollback: Any) -> list[int]:
    """Batches of rollbacks."""
    walk = walked(sure(rollback=BACK | rollback), stream)
    return [look.batch for look in walk.looks if any(change.actor == "rollback" for change in look.changes)]


def test_a_champion_goes_back_after_so_many_bad_intervals_in_a_row() -> None:
    # The interval of day 3 closes with day 4.
    assert rolled_back(failing([0.9, 0.1, 0.1, 0.9])) == [5]
    assert rolled_back(failing([0.9, 0.1, 0.9, 0.1, 0.9, 0.9])) == []
    assert rolled_back(failing([0.9, 0.1, 0.1, 0.1, 0.9]), intervals=3) == [6]


def test_an_interval_with_too_few_samples_counts_neither_way() -> None:
    stream = failing([0.1, 0.9, 0.1, 0.9])
    few = stream.batch == 3
    stream = replace(stream, labelled=np.where(few, 1 << 30, stream.labelled))
    assert rolled_back(stream) == [5]
    assert rolled_back(failing([0.1, 0.1, 0.1], size=4)) == []


def test_intervals_wait_until_they_are_mature() -> None:
    stream = failing([0.1, 0.1, 0.9, 0.9, 0.9, 0.9])
    assert rolled_back(stream) == [4]
    # Promoted two days later, too, so that its bad days are before its time.
    later = failing([0.9, 0.9, 0.1, 0.1, 0.9, 0.9, 0.9, 0.9])
    assert rolled_back(replace(later, maturity=2)) == [8]


def test_a_bound_from_above_is_for_losses_and_a_drop_is_measured_on_the_same_samples() -> None:
    stream = failing([0.1, 0.1, 0.9])
    assert rolled_back(stream, below=None, above=0.5, metric="log_loss") == [4]
    assert rolled_back(stream, below=None, max_drop=0.0) == []
    better = replace(stream.models[0], right=np.where(stream.batch == 1, False, stream.truth == 1))
    assert rolled_back(replace(stream, models=(better, stream.models[1])), below=None, max_drop=0.1) == [4]


def test_a_rollback_goes_to_the_newest_earlier_champion_that_can_be_loaded() -> None:
    stream = stream_of([40] * 8, [(0, 0.1), (0, 0.4), (2, 0.97)], seed=1)
    for lost, expected in (((), [1]), ((1,), [0]), ((0, 1), [])):
        models = tuple(replace(each, lost=6) if each.trigger in lost else each for each in stream.models)
        bad = replace(models[2], right=models[2].right & (stream.batch < 5))
        walk = walked(sure(rollback=BACK), replace(stream, models=(*models[:2], bad)))
        assert walk.moves(1)[2] == walk.moves(2)[2] == "champion"
        back = [each.trigger for each in walk.changes if each.state == "champion" and each.actor == "rollback"]
        assert back == expected
        assert walk.end.champion == (expected or [2])[0]


@given(WALKS)
def test_between_a_change_of_the_champion_and_a_rollback_lies_the_cool_down(walk: Walk) -> None:
    rollback = walk.rules.spec.rollback
    moments = [(look.batch, each.actor) for look in walk.looks for each in look.changes if each.state == "champion"]
    for (earlier, _), (later, actor) in pairwise(moments):
        if actor == "rollback":
            assert rollback is not None
            assert later - earlier >= 3


@given(st.integers(0, 1000), st.integers(1, 3), st.integers(1, 5), st.integers(1, 4))
def test_whatever_the_scores_are_a_gate_does_not_flap(seed: int, intervals: int, cool_down: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    n = 40
    stream = stream_of([6 * size] * n, [(int(born), 0.5) for born in np.sort(rng.integers(0, n, 12))], seed=seed)
    # Each model is perfect until it has been the champion for a while, and then useless.
    made = [replace(each, right=np.abs(stream.batch - each.born - 2) <= 2) for each in stream.models]
    back = BACK | {"intervals": intervals, "cool_down": f"{cool_down}d"}
    walk = walked(sure(rollback=back), replace(stream, models=tuple(made)))
    champions = [(look.batch, each.actor) for look in walk.looks for each in look.changes if each.state == "champion"]
    moments = [batch for batch, actor in champions if actor == "rollback"]
    assert all(later - earlier >= max(cool_down, intervals) for earlier, later in pairwise(moments))
    # A champion that was rolled back is none to go back to, so rollbacks come to an end by themselves.
    assert len(moments) < len(champions) - len(moments) or not champions


def test_a_person_who_changes_the_champion_begins_a_cool_down_too() -> None:
    stream = stream_of([10] * 3, [(0, 0.5), (0, 0.5)])
    rules = rules_of(rollback=BACK | {"cool_down": "7d"}).spec
    state, _ = crowned(rules, GateState(champion=0), 1, "it is better", "ann", MemoryEvidence(stream, 2))
    assert state.quiet_until == 9 * DAY


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(1, 4))
def test_so_many_champions_before_are_kept_as_the_rules_say_the_newest(crowns: list[int], kept: int) -> None:
    rules, evidence = rules_of(former=kept).spec, MemoryEvidence(stream_of([10], [(0, 0.5)] * 10), 0)
    state, line = GateState(), list[int]()
    for trigger in crowns:
        if trigger != state.champion:
            state, _ = crowned(rules, state, trigger, "it is better", "ann", evidence)
            line = [each for each in line if each != trigger] + [trigger]
        # A champion that comes back leaves its old place.
        line = line[-kept - 1 :]
        assert (list(state.former), state.champion) == (line[:-1], line[-1])
