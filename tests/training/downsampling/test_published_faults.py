"""Faults of published implementations that ours must not have: F1 to F7 and F10 of docs/downsampling.md."""

import numpy as np
import pytest
import torch

from modyn_dagster.training.downsampling import select
from tests.training.downsampling.pools import assert_unbiased


@pytest.mark.soak("laws-training")
@pytest.mark.long
def test_f1_drawing_without_replacement_is_not_weighted_as_if_with_replacement() -> None:
    rng = np.random.default_rng(0)
    losses, values = torch.from_numpy(rng.exponential(size=20)), torch.from_numpy(rng.normal(size=20))
    assert_unbiased("loss", {"losses": losses}, values, k=10, draws=3000, replacement=False)
    q = (losses / losses.sum()).numpy()
    wrong = [
        float((values.numpy()[drawn] / (10 * q[drawn])).sum())
        for seed in range(3000)
        for drawn in [np.random.default_rng(seed).choice(20, 10, replace=False, p=q)]
    ]
    assert abs(np.mean(wrong) - float(values.sum())) > 4 * np.std(wrong) / np.sqrt(3000), "the published rule would be noticed"


def test_f2_facility_location_counts_every_row_when_it_works_in_blocks() -> None:
    """Four clusters one after the other: each gets a representative, whatever the blocks."""
    centres = torch.tensor([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0], [100.0, 100.0]])
    points = centres.repeat_interleave(25, 0) + torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    for block_bytes in (1, 8_000, 1 << 20):
        found = select("facility_location", embeddings=points, k=8, seed=0, block_bytes=block_bytes)[0]
        assert set((found // 25).tolist()) == {0, 1, 2, 3}
        assert set((found[:4] // 25).tolist()) == {0, 1, 2, 3}


def test_f3_craig_weights_sum_to_n_not_to_n_and_k() -> None:
    gradients = torch.randn(100, 5, generator=torch.Generator().manual_seed(0))
    assert float(select("craig", gradients=gradients, k=10, seed=0)[1].sum()) == 100


def test_f4_gradmatch_does_not_depend_on_the_scale_of_gradients() -> None:
    gradients = torch.randn(100, 20, generator=torch.Generator().manual_seed(0)) + 0.3
    one, other = (select("gradmatch", gradients=gradients * scale, k=10, seed=0) for scale in (1.0, 1e-3))
    assert one[0].tolist() == other[0].tolist()
    torch.testing.assert_close(one[1], other[1], rtol=1e-4, atol=1e-4)
    assert float(other[1].sum()) > 10


def test_f5_least_confidence_uses_probabilities_not_logits() -> None:
    logits = torch.tensor([[20.0, 19.9], [1.0, -5.0]])
    assert select("least_confidence", logits=logits, k=1, seed=0)[0].tolist() == [0]


def test_f6_uncertainty_keeps_the_uncertain() -> None:
    logits = torch.tensor([[9.0, 0.0], [0.1, 0.0], [4.0, 0.0]])
    for name in ("least_confidence", "margin", "entropy"):
        assert select(name, logits=logits, k=1, seed=0)[0].tolist() == [1]


def test_f7_rs2_without_replacement_does_not_drop_the_tail() -> None:
    seen = torch.cat([select("rs2_without_replacement", n=10, k=4, seed=0, epoch=epoch)[0] for epoch in range(3)])
    assert set(seen.tolist()) == set(range(10))


def test_f10_infobatch_is_not_biased_by_rounding_down_how_many_stay() -> None:
    """Three low losses, int(0.5 * 3) = 1 of which would stay with weight 2: they would count 2 instead of 3."""
    losses = torch.tensor([0.1, 0.1, 0.1, 9.0])
    assert_unbiased("infobatch", {"losses": losses}, torch.tensor([1.0, 1.0, 1.0, 0.0]), k=2, draws=3000)
