"""Budgets against brute force: no window of sample time exceeds a cap, and no fire is suppressed that would fit."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.keys import ORIGIN
from modyn_dagster.triggering import ModelTrained, build_policy
from tests.triggering.laws import one_batch
from tests.triggering.wrappers.test_budget import WINDOW, amount, budget, seconds

caps = st.fixed_dictionaries(
    {},
    optional={"triggers": st.integers(1, 4), "samples": st.integers(1, 40), "seconds": st.integers(1, 20).map(float)},
).filter(bool)
windows = st.sampled_from(["since_last_trigger", {"last_triggers": 2}, "all"])


@given(
    caps=caps,
    window=windows,
    limit=st.none() | st.integers(1, 10),
    every=st.integers(1, 6),
    per=st.integers(1, 60),
    steps=st.lists(st.integers(0, 9), min_size=1, max_size=60),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_window_of_sample_time_ever_exceeds_a_cap(caps, window, limit, every, per, steps, seed):
    spec = budget(amount(every), per=f"{per}s", cost={"fixed": 1.0, "per_sample": 0.25}, **caps)
    policy = build_policy(spec, window=WINDOW.validate_python(window), limit=limit)
    times, rng = np.cumsum(steps), np.random.default_rng(seed)
    stream, cursor = one_batch(seconds(*times)), ORIGIN
    spent: list[tuple[int, int, float]] = []
    trained: list[int] = []
    while (point := policy.next_point(cursor, stream)) is not None:
        decision, cursor = policy.decide(point), point
        expected = window_size(window, decision.key, trained, limit)
        now = [(1, n, s) for time, n, s in spent if time > times[decision.key] - per] + [(1, expected, 1.0 + 0.25 * expected)]
        within = all(sum(column) <= caps.get(cap, np.inf) for cap, column in zip(("triggers", "samples", "seconds"), zip(*now)))
        assert decision.fire == within
        if not decision.fire:
            continue
        policy.triggered(decision.key)
        n = expected
        if rng.random() < 0.7:
            # Deleted samples make a training set smaller than its window.
            n = int(rng.integers(0, expected + 1))
            policy.model_trained(ModelTrained(decision.key, n, 1000.0))
            trained.append(decision.key)
        spent.append((times[decision.key], n, 1.0 + 0.25 * n))
    for end in range(int(times[-1]) + 1):
        inside = [(1, n, s) for time, n, s in spent if end - per < time <= end]
        for cap, column in zip(("triggers", "samples", "seconds"), zip(*inside)):
            assert sum(column) <= caps.get(cap, np.inf)


def window_size(window: Any, key: int, trained: list[int], limit: int | None) -> int:
    """Largest possible training set; keys are indices here."""
    back = {"since_last_trigger": 1}.get(window) if isinstance(window, str) else window["last_triggers"]
    first = trained[-back] if back is not None and len(trained) >= back else -1
    return min(key - first, key - first if limit is None else limit)
