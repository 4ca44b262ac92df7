"""Shares of a batch: every sample falls to one rank, and a choice is the same for any number of ranks."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastpath.order import Batching, part_sizes
from modyn_dagster.training.inputs.batch import Batch, Whole
from modyn_dagster.training.team.team import pack, unpack


@given(st.integers(1, 60), st.integers(1, 20), st.booleans(), st.integers(1, 9))
def test_the_parts_of_a_batch_are_its_samples_in_order(n: int, size: int, drop_last: bool, ranks: int) -> None:
    whole = Batching(n, size, drop_last)
    parts = [Batching(n, size, drop_last, (i, ranks)) for i in range(ranks)]
    for number in range(len(whole)):
        start, stop = whole.bounds(number)
        sizes = part_sizes(stop - start, ranks)
        assert max(sizes) - min(sizes) <= 1
        taken: list[int] = []
        for part, count in zip(parts, sizes, strict=True):
            first, last = part.part_bounds(number)
            # A reader without a sample takes one all the same.
            assert (last - first, start <= first < last <= stop) == (max(1, count), True)
            taken += range(first, first + count)
        assert taken == list(range(start, stop))


def batch_of(n: int, weights: torch.Tensor) -> Batch:
    return Batch(torch.arange(n) + 100, {"x": torch.arange(n)[:, None]}, torch.arange(n) % 3, weights, float(weights.sum()))


def share_of(batch: Batch, rank: int, ranks: int) -> Batch:
    counts = tuple(part_sizes(len(batch), ranks))
    first = sum(counts[:rank])
    at = slice(first, first + counts[rank]) if counts[rank] else slice(0, 1)
    whole = Whole(batch.keys, batch.targets, batch.weights, counts, rank)
    inputs = {name: tensor[at] for name, tensor in batch.inputs.items()}
    return Batch(batch.keys[at], inputs, batch.targets[at], batch.weights[at], batch.weight, whole=whole)


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 2**32), st.booleans())
def test_a_choice_of_a_batch_in_shares_is_the_choice_of_the_batch(n: int, ranks: int, seed: int, estimates: bool) -> None:
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, n + 1))
    indices, factors = torch.from_numpy(rng.integers(0, n, k)), torch.from_numpy(rng.uniform(0, 2, k))
    batch = batch_of(n, torch.from_numpy(rng.uniform(0.1, 3, n).astype(np.float32)))
    expected = batch.subset(indices, factors, estimates=estimates)
    shares = [share_of(batch, rank, ranks).subset(indices, factors, estimates=estimates) for rank in range(ranks)]
    for rank, share in enumerate(shares):
        assert share.whole is not None
        assert (len(share), share.weight, share.divisor) == (k, expected.weight, expected.divisor)
        assert share.is_idle == (share.whole.counts[rank] == 0)
        assert share.whole.own(share.whole.keys).tolist() == share.keys.tolist() == (share.inputs["x"][:, 0] + 100).tolist()
        assert share.whole.own(share.whole.weights).tolist() == share.weights.tolist()
    found = [pair for share in shares for pair in zip(share.keys.tolist(), share.weights.tolist(), strict=True)]
    assert sorted(found) == sorted(zip(expected.keys.tolist(), expected.weights.tolist(), strict=True))
    assert [key for key, _ in found] == shares[0].everything.keys.tolist()


@given(st.lists(st.sampled_from(["int64", "float32", "float64", "uint8", "bool", "bfloat16"]), min_size=1), st.integers(0, 5))
def test_rows_of_any_dtype_and_shape_come_back(dtypes: list[str], n: int) -> None:
    rows = [torch.arange(n * width).reshape(n, width, 1).to(getattr(torch, dtype)) for width, dtype in enumerate(dtypes)]
    for found, row in zip(unpack(pack(rows), rows), rows, strict=True):
        assert (found.dtype, found.shape) == (row.dtype, row.shape)
        assert torch.equal(found, row)
