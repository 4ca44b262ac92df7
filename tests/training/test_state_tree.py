"""State survives being written as JSON and tensors, bit for bit."""

import json
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modyn_dagster.training.states import flatten, restore
from tests.examples import examples

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.binary(max_size=4)
    | st.text()
    | st.sampled_from([torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float32, torch.float64]).flatmap(
        lambda dtype: st.sampled_from([(), (0,), (3,), (2, 2)]).map(lambda shape: torch.ones(shape).to(dtype))
    )
    | st.sampled_from([np.uint32, np.int64, np.float32]).map(lambda dtype: np.arange(3).astype(dtype))
)
KEYS = st.integers() | st.text() | st.booleans() | st.tuples(st.integers(), st.text())
STATES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@given(STATES)
@settings(max_examples=examples(60), deadline=None)
def test_what_is_restored_is_what_was_flattened(state: Any) -> None:
    content, tensors = flatten(state)
    assert same(restore(json.loads(json.dumps(content)), tensors), state)


def test_tensors_are_copies_both_ways() -> None:
    tensor = torch.zeros(3)
    content, tensors = flatten({"t": tensor})
    tensor += 1
    back = restore(content, tensors)["t"]
    back += 5
    assert next(iter(tensors.values())).tolist() == [0, 0, 0]
