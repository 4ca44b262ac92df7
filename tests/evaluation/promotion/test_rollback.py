"""Laws of the automatic rollback: bad intervals in a row, the cool-down, and the champion that comes back."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

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


def test_an_interval_waits_for_late_labels_and_counts_once_it_has_enough() -> None:
    stream = failing([0.9, 0.1, 0.1, 0.1] + [0.9] * 6)
    # The interval of a day closes with the next one, so labels that are a day late come in time.
    for late, batch in enumerate((5, 5, 6, 7)):
        assert rolled_back(replace(stream, labelled=stream.batch + np.where(stream.batch >= 2, late, 0))) == [batch]
    # Labels that never come keep nothing from being judged once those of later samples have come.
    lost = np.where(np.isin(stream.batch, (3, 4)), 1 << 30, stream.batch)
    assert rolled_back(replace(stream, labelled=lost), intervals=1) == [6]
    assert rolled_back(replace(stream, labelled=np.where(stream.batch >= 2, 1 << 30, stream.batch))) == []


def test_a_guardrail_that_the_champion_breaks_against_the_one_before_is_watched_also_by_slice() -> None:
    stream = failing([0.9] * 5)
    right = stream.models[1].right.copy()
    groups = np.array(list("ab"), object)[np.arange(len(stream.batch)) % 2]
    # From day 3 on it fails one group alone, on which the champion before does well; over both it is no worse.
    right[stream.batch >= 3] = groups[stream.batch >= 3] == "b"
    before = np.where(stream.batch == 1, False, groups == "a")
    stream = replace(
        stream, groups=groups, models=(replace(stream.models[0], right=before), replace(stream.models[1], right=right))
    )

    def moved(slice_: str | None, **rollback: Any) -> list[tuple[int, str]]:
        guardrail = {"metric": "accuracy", "max_drop": 0.3} | ({"slice": slice_} if slice_ else {})
        rules = sure(rollback=BACK | {"below": None, "guardrails": True} | rollback, guardrails={"metrics": [guardrail]})
        looks = walked(rules, stream).looks
        return [(each.batch, c.reason) for each in looks for c in each.changes if c.actor == "rollback" and c.state == "champion"]

    assert moved(None) == []
    [(batch, reason)] = moved("group")
    assert batch == 5
    assert "its accuracy is 0 against 1 of the champion before on group=a, worse by more than max_drop 0.3, from " in reason
    # Values of a slice with too few samples are left out; a bound beside it counts too.
    assert moved("group", min_samples=15) == []
    assert [batch for batch, _ in moved(None, below=0.6)] == [5]


def test_limits_of_a_rollback_are_one_bound_or_the_guardrails_that_there_are() -> None:
    metrics = {"metrics": [{"metric": "f1", "max_drop": 0.1}]}
    for back, guardrails in (({}, metrics), ({"below": 0.5, "above": 0.6}, metrics), ({"guardrails": True}, {})):
        with pytest.raises(ValidationError, match=r"give exactly one of below, above and max_drop|there are none"):
            rules_of(rollback=back, guardrails=guardrails)
    assert "guardrails" not in rules_of(rollback={"below": 0.5}).spec.model_dump(mode="json")["rollback"]


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
