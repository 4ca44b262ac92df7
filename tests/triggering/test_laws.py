"""The laws of every policy, over policies that measure: batches, prefixes, state, seeds."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modyn_dagster.keys import ORIGIN
from modyn_dagster.triggering import Decision, Measured, ModelTrained, build_policy, simulate
from tests.examples import examples
from tests.triggering.laws import one_batch, split_points
from tests.triggering.measured import BLOCKS, point_of, scores_for

MOST = 60
offsets = st.lists(st.integers(0, 300), min_size=1, max_size=MOST)
seeds = st.integers(0, 1000)
over_every_block = pytest.mark.parametrize("name", BLOCKS)


def days(values: list[int]) -> np.ndarray:
    return np.array(values, dtype="datetime64[D]")


def decisions(name: str, times: np.ndarray, seed: int, **options) -> list:
    block = BLOCKS[name]
    scores = scores_for(block, MOST, seed)
    return simulate(build_policy(block), times, scores=scores, training_seconds=lambda n: 1 + 0.1 * n, **options)


@over_every_block
@settings(max_examples=examples(30))
@given(data=st.data(), values=offsets, seed=seeds)
def test_splitting_the_stream_into_other_batches_changes_no_decision(name, data, values, seed):
    batches = data.draw(split_points(len(values)))
    assert decisions(name, days(values), seed, batches=batches) == decisions(name, days(values), seed)


@over_every_block
@settings(max_examples=examples(30))
@given(values=offsets, length=st.integers(1, MOST), seed=seeds)
def test_decisions_on_a_prefix_are_a_prefix_of_the_decisions(name, values, length, seed):
    whole, prefix = decisions(name, days(values), seed), decisions(name, days(values[:length]), seed)
    assert prefix == whole[: len(prefix)]
    assert len(prefix) == sum(decision.index < length for decision in whole)


def driven(name: str, times: np.ndarray, seed: int, reload_every: int | None) -> list[Decision]:
    """Decisions of a policy driven by hand; every n-th decision its state goes through JSON into a fresh one."""
    block = BLOCKS[name]
    made = scores_for(block, MOST, seed)
    stream = one_batch(times)
    policy, cursor, found = build_policy(block), ORIGIN, []
    while (point := policy.next_point(cursor, stream)) is not None:
        answers = {
            path: Measured(
                {key: None if np.isnan(of[need.ordinal]) else float(of[need.ordinal]) for key, of in made.items()}
                | {"n_samples": 3.0}
            )
            for path, need in policy.needs(point).items()
        }
        decision = policy.decide(point, answers)
        found.append(decision)
        cursor = point
        if decision.fire:
            policy.triggered(decision.key)
            policy.model_trained(ModelTrained(decision.key, len(found), float(len(found))))
        if reload_every is not None and len(found) % reload_every == 0:
            state = json.loads(json.dumps(policy.state_dict(), allow_nan=False))
            policy = build_policy(block)
            policy.load_state_dict(state)
    return found


@over_every_block
@settings(max_examples=examples(30))
@given(values=offsets, every=st.integers(1, 5), seed=seeds)
def test_saving_and_loading_state_at_any_decision_changes_none(name, values, every, seed):
    assert driven(name, days(values), seed, every) == driven(name, days(values), seed, None)


@over_every_block
def test_the_streams_of_these_laws_make_every_block_fire_and_stay_quiet(name):
    fires = [one.fire for one in decisions(name, days(list(range(0, 5 * MOST, 5))), seed=1)]
    assert fires[0]
    assert any(fires[1:])
    assert not all(fires)


@over_every_block
def test_an_empty_state_is_a_fresh_start(name):
    policy = build_policy(BLOCKS[name])
    fresh = policy.state_dict()
    policy.model_trained(ModelTrained(5, 6, 1.0))
    policy.triggered(5)
    assert policy.state_dict() != fresh
    policy.load_state_dict({})
    assert policy.state_dict() == fresh


@over_every_block
def test_asking_again_gives_the_same_point_and_changes_nothing(name):
    stream = one_batch(days(list(range(20))))
    policy = build_policy(BLOCKS[name])
    policy.triggered(0)
    policy.model_trained(ModelTrained(0, 1, 1.0))
    point = point_of(policy, ORIGIN, stream)
    needs, state = policy.needs(point), policy.state_dict()
    assert (policy.next_point(ORIGIN, stream), policy.needs(point), policy.state_dict()) == (point, needs, state)


@over_every_block
def test_deciding_at_a_point_that_was_not_named_is_an_error(name):
    with pytest.raises(ValueError, match="must follow the next_point"):
        build_policy(BLOCKS[name]).decide(3)
