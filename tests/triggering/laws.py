"""Policies and streams for the laws of triggering policies, and a driver of one policy."""

import json
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from modyn_dagster.keys import ORIGIN
from modyn_dagster.triggering import Decision, Stream, StreamBatch, build_policy

POLICIES: Final[list[dict[str, Any]]] = [
    {"kind": "amount", "every": 1},
    {"kind": "amount", "every": 7, "max_triggers": 3},
    {"kind": "time", "every": "10d"},
    {"kind": "time", "every": "3d", "start": "1970-02-01"},
    {"kind": "time", "every": "30d", "max_triggers": 1},
]


def split_points(length: int) -> st.SearchStrategy[list[int]]:
    """Lengths of batches, empty ones among them, that add up to ``length``."""
    cuts = st.lists(st.integers(0, length), max_size=8).map(sorted)
    return cuts.map(lambda inner: [int(n) for n in np.diff([0, *inner, length])])


def decisions_of(spec: dict[str, Any], timestamps: np.ndarray, *, reload_every: int | None) -> list[tuple[int, Decision]]:
    """Points and decisions of a policy; every n-th decision its state goes through JSON into a new object."""
    times = timestamps.astype("datetime64[us]")
    stream = Stream([StreamBatch(0, len(times), times.max(), lambda: (np.arange(len(times)), times))])
    policy, cursor, decisions = build_policy(spec), ORIGIN, []
    while (point := policy.next_point(cursor, stream)) is not None:
        decision = policy.decide(point)
        decisions.append((point, decision))
        if decision.fire:
            policy.triggered(decision.key)
        cursor = point
        if reload_every is not None and len(decisions) % reload_every == 0:
            state = json.loads(json.dumps(policy.state_dict()))
            policy = build_policy(spec)
            policy.load_state_dict(state)
    return decisions


def one_batch(timestamps: np.ndarray, origin: int = ORIGIN) -> Stream:
    """All samples in one batch: keys are indices."""
    times = timestamps.astype("datetime64[us]")
    return Stream([StreamBatch(0, len(times), times.max(), lambda: (np.arange(len(times)), times))], origin)
