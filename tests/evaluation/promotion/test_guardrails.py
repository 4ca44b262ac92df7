"""Guardrails of a candidate that passed its test: other metrics, slices, size and latency."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.evaluation.promotion.memory import Stream, stream_of
from tests.evaluation.promotion.walks import sure, walked


def worse_in_one_group() -> Stream:
    """A candidate that is better on the whole and worse on the group b."""
    stream = stream_of([0, 200], [(0, 0.5), (0, 0.5)], seed=3)
    groups = np.where(np.arange(200) % 4 == 0, "b", "a").astype(object)
    champion = np.where(groups == "a", np.arange(200) % 3 == 0, True)
    candidate = np.where(groups == "a", True, np.arange(200) % 8 == 0)
    old, new = stream.models
    return replace(stream, groups=groups, models=(replace(old, right=champion), replace(new, right=candidate)))


def ending(stream: Stream, guardrails: dict[str, Any], **promotion: Any) -> tuple[str, str]:
    """Last state of the candidate, and why."""
    walk = walked(sure(guardrails=guardrails, **promotion), stream)
    last = [change for change in walk.changes if change.trigger == 1][-1]
    return last.state, last.reason


def test_a_candidate_that_falls_on_a_slice_is_rejected_and_one_that_may_fall_so_far_is_not() -> None:
    stream = worse_in_one_group()
    assert ending(stream, {})[0] == "champion"
    rule = {"metric": "accuracy", "max_drop": 0.05}
    assert ending(stream, {"metrics": [rule]})[0] == "champion"
    state, reason = ending(stream, {"metrics": [rule | {"slice": "group"}]})
    assert state == "rejected"
    assert reason.endswith(
        "breaks a guardrail: its accuracy is 0.5 against 1 of the champion on group=b, worse by more than max_drop 0.05"
    )
    assert ending(stream, {"metrics": [rule | {"slice": "group", "max_drop": 1.0}]})[0] == "champion"


def test_a_value_of_a_slice_with_too_few_pairs_breaks_nothing() -> None:
    stream, rule = worse_in_one_group(), {"metric": "accuracy", "max_drop": 0.05, "slice": "group"}
    assert ending(stream, {"metrics": [rule]}, min_samples=50)[0] == "rejected"
    assert ending(stream, {"metrics": [rule]}, min_samples=51)[0] == "champion"


def test_samples_without_a_value_are_in_no_slice() -> None:
    stream, rule = worse_in_one_group(), {"metric": "accuracy", "max_drop": 0.05, "slice": "group"}
    groups = stream.groups.copy()
    groups[groups == "b"] = None
    stream = replace(stream, groups=groups)
    assert ending(stream, {"metrics": [rule]})[0] == "champion"


def test_a_loss_may_rise_by_so_much() -> None:
    stream = worse_in_one_group()
    # The candidate is the better one by the accuracy; by a loss the drop has the other sign.
    rule = {"metric": "log_loss", "max_drop": 0.0, "slice": "group"}
    state, reason = ending(stream, {"metrics": [rule]})
    assert (state, "log_loss" in reason) == ("rejected", True)
    assert ending(stream, {"metrics": [{"metric": "log_loss", "max_drop": 0.0}]})[0] == "champion"


@pytest.mark.parametrize(
    ("guardrails", "fields", "state"),
    [
        ({"max_bytes": "1MB"}, {"n_bytes": 1_000_000}, "champion"),
        ({"max_bytes": "1MB"}, {"n_bytes": 1_000_001}, "rejected"),
        ({"max_latency": 0.5}, {"latency": 0.5}, "champion"),
        ({"max_latency": 0.5}, {"latency": 0.6}, "rejected"),
        ({"max_latency": 0.5}, {"latency": None}, "champion"),
    ],
)
def test_size_and_latency_have_limits(guardrails, fields, state) -> None:
    stream = stream_of([0, 80], [(0, 0.05), (0, 0.95)])
    stream = replace(stream, models=(stream.models[0], replace(stream.models[1], **fields)))
    assert ending(stream, guardrails)[0] == state
