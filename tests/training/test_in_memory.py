"""Batches gathered many at a time: what each of them would be if it were gathered alone."""

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastpath import Order
from fastpath.order import Batching
from modyn_dagster.keys import KeyArray
from modyn_dagster.training.inputs.batch import Batch
from modyn_dagster.training.inputs.in_memory import InMemory, Positions
from modyn_dagster.training.memory import ALIGNMENT

Weights = npt.NDArray[np.float32]

N = 700
RNG = np.random.default_rng(0)
KEYS = RNG.integers(0, 2**63, N, dtype=np.uint64)
TARGETS = torch.from_numpy(RNG.integers(0, 9, N))
#: Rows of 40, 6, 1, 9 and no bytes: none of them keeps the alignment of every batch size.
INPUTS = {
    "floats": torch.from_numpy(RNG.normal(size=(N, 10)).astype(np.float32)),
    "small": torch.from_numpy(RNG.integers(-99, 99, (N, 3)).astype(np.int16)),
    "bool": torch.from_numpy(RNG.integers(0, 2, N) > 0),
    "image": torch.from_numpy(RNG.integers(0, 255, (N, 1, 3, 3)).astype(np.uint8)),
    "nothing": torch.empty(N, 0),
}
ONES = np.ones(N, dtype=np.float32)
UNEVEN = RNG.uniform(0.1, 3, N).astype(np.float32)


def gathered(batching: Batching, order: Order, given_weights: Weights, start: int, **limits: int) -> list[Batch]:
    def take(places: Positions, keys: KeyArray, weights: Weights) -> Positions:
        keys[:], weights[:] = KEYS[places], given_weights[places]
        return places

    return list(InMemory(INPUTS, TARGETS, **limits).batches(order, batching, take, start=start))


@given(
    st.integers(1, N),
    st.integers(1, 130),
    st.booleans(),
    st.sampled_from([ONES, UNEVEN]),
    st.integers(0, 20),
    st.sampled_from([1, 3, 64]),
    st.sampled_from([1, 4096, 1 << 20]),
)
def test_a_batch_among_others_is_the_batch_alone(
    n: int, size: int, drop_last: bool, weights: Weights, start: int, together: int, n_bytes: int
) -> None:
    order, batching = Order(n, shuffle=True, seed=3, epoch=1), Batching(n, size, drop_last)
    start = min(start, len(batching))
    found = gathered(batching, order, weights, start, most_batches=together, cache_bytes=n_bytes)
    assert len(found) == len(batching) - start
    for number, one in enumerate(found, start):
        at = order.positions(*batching.bounds(number))
        assert one.keys.numpy().view(np.uint64).tolist() == KEYS[at].tolist()
        assert one.inputs.keys() == INPUTS.keys()
        for name, tensor in one.inputs.items():
            expected = INPUTS[name][torch.from_numpy(at)]
            assert torch.equal(tensor, expected)
            assert (tensor.dtype, tensor.shape) == (expected.dtype, expected.shape)
        assert torch.equal(one.targets, TARGETS[torch.from_numpy(at)])
        assert one.weights.numpy().tobytes() == weights[at].tobytes()
        assert one.weight == float(np.sum(weights[at], dtype=np.float64))


@given(st.integers(1, N), st.integers(1, 130))
def test_every_batch_begins_where_torch_would_have_put_it(n: int, size: int) -> None:
    """Kernels choose their path by the alignment: other memory, other bits."""
    order = Order(n, shuffle=True, seed=3, epoch=1)
    for one in gathered(Batching(n, size), order, UNEVEN, 0):
        for tensor in (*one.inputs.values(), one.targets, one.weights):
            assert tensor.is_contiguous()
            assert tensor.data_ptr() % ALIGNMENT == 0


def test_batches_that_are_kept_do_not_change() -> None:
    batching, order = Batching(N, 7), Order(N, shuffle=True, seed=0, epoch=0)
    first = gathered(batching, order, ONES, 0)
    before = [one.inputs["floats"].clone() for one in first]
    for one in gathered(batching, order, ONES, 0):
        one.inputs["floats"].zero_()
    assert all(torch.equal(one.inputs["floats"], was) for one, was in zip(first, before, strict=True))


@pytest.mark.parametrize(("n_bytes", "most"), [(1, 1), (10_000, 16), (1 << 30, 64)])
def test_no_more_is_gathered_together_than_a_cache_holds(n_bytes: int, most: int) -> None:
    """8 rows of 40 + 8 + 8 + 4 bytes, padded to 16."""
    asked: list[int] = []

    def take(places: Positions, keys: KeyArray, weights: Weights) -> Positions:
        asked.append(len(places))
        keys[:], weights[:] = 0, 1
        return places

    rows = InMemory({"floats": INPUTS["floats"]}, TARGETS, cache_bytes=n_bytes)
    assert len(list(rows.batches(Order(N, shuffle=False, seed=0, epoch=0), Batching(N, 8), take, start=0))) == 88
    width = 8 if most == 1 else 16
    assert max(asked) == width * min(most, n_bytes // (16 * 60) or 1)
