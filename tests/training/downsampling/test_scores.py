"""Policies that keep the highest scores."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modyn_dagster.training.downsampling import select
from tests.examples import examples
from tests.training.downsampling.pools import everything

UNCERTAINTY = ["least_confidence", "margin", "entropy"]


def by_hand(name: str, logits: torch.Tensor) -> list[float]:
    scores = []
    for row in logits.tolist():
        largest = max(row)
        parts = [math.exp(z - largest) for z in row]
        p = sorted((part / sum(parts) for part in parts), reverse=True)
        rules = {"least_confidence": 1 - p[0], "margin": p[1] - p[0], "entropy": -sum(x * math.log(x) for x in p if x)}
        scores.append(rules[name])
    return scores


@pytest.mark.parametrize("name", UNCERTAINTY)
def test_the_least_certain_samples_are_kept_best_first(name: str) -> None:
    logits = everything(50)["logits"]
    indices, weights = select(name, logits=logits, k=12, seed=0)
    assert indices.tolist() == np.argsort(-np.array(by_hand(name, logits)))[:12].tolist()
    assert weights.tolist() == [1.0] * 12


@pytest.mark.parametrize("name", [*UNCERTAINTY, "dlis", "el2n"])
@given(seed=st.integers(0, 1000), size=st.sampled_from([1.0, 30.0, 1000.0]))
@settings(max_examples=examples(15), deadline=None)
def test_a_constant_added_to_a_samples_logits_changes_nothing(name: str, seed: int, size: float) -> None:
    inputs = everything(30, seed=seed)
    logits = inputs["logits"].double()
    shifted = logits + size * torch.randn(30, 1, generator=torch.Generator().manual_seed(seed)).double()
    one = select(name, logits=logits, labels=inputs["labels"], k=10, seed=seed)
    other = select(name, logits=shifted, labels=inputs["labels"], k=10, seed=seed)
    assert one[0].tolist() == other[0].tolist()
    torch.testing.assert_close(one[1], other[1])


def test_rho_keeps_what_can_still_be_learnt() -> None:
    indices, _ = select("rho", losses=[3.0, 1.0, 2.0, 0.5], irreducible_losses=[2.9, 0.1, 0.2, 0.6], k=2, seed=0)
    assert indices.tolist() == [2, 1]


def test_el2n_is_the_norm_of_p_minus_y_averaged_over_models() -> None:
    inputs = everything(20)
    stacked = torch.stack([inputs["logits"], inputs["logits"].flip(1)])
    errors = torch.softmax(stacked, -1) - torch.nn.functional.one_hot(inputs["labels"], 4)
    expected = errors.norm(dim=-1).mean(0).argsort(descending=True)
    assert select("el2n", logits=stacked, labels=inputs["labels"], k=5, seed=0)[0].tolist() == expected[:5].tolist()
    band = select("el2n", logits=stacked, labels=inputs["labels"], k=5, seed=0, offset=0.25)[0]
    assert band.tolist() == expected[5:10].tolist()
    recorded = select("el2n", history=errors.norm(dim=-1), k=5, seed=0)[0]
    assert recorded.tolist() == expected[:5].tolist()


def test_dlis_scores_are_the_gradients_of_autograd() -> None:
    """Drawn with replacement, weights tell the probabilities."""
    inputs = everything(15)
    logits = inputs["logits"].double().requires_grad_()
    torch.nn.functional.cross_entropy(logits, inputs["labels"], reduction="sum").backward()  # type: ignore[no-untyped-call]  # torch has no type for it
    assert logits.grad is not None
    norms = logits.grad.norm(dim=1)
    indices, weights = select("dlis", logits=logits, labels=inputs["labels"], k=8, seed=2, start="always")
    torch.testing.assert_close(weights, norms.sum() / (8 * norms[indices]))


def test_grand_is_the_norm_of_gradients_averaged_over_models() -> None:
    gradients = torch.randn(3, 20, 6, generator=torch.Generator().manual_seed(0))
    expected = gradients.norm(dim=-1).mean(0).argsort(descending=True)
    assert select("grand", gradients=gradients, k=5, seed=0)[0].tolist() == expected[:5].tolist()
    assert select("grand", history=gradients.norm(dim=-1), k=5, seed=0)[0].tolist() == expected[:5].tolist()


def test_infobatch_keeps_all_from_the_mean_on_and_in_the_last_epochs_everyone() -> None:
    losses = torch.tensor([0.1, 0.2, 0.3, 4.0, 5.0] * 8)
    for epoch in range(10):
        indices, weights = select("infobatch", losses=losses, k=1, seed=0, ratio=0.75, epochs=10, delta=0.8, epoch=epoch)
        if epoch >= 8:
            assert (indices.tolist(), set(weights.tolist())) == (list(range(40)), {1.0})
        else:
            assert set(torch.nonzero(losses > 1).flatten().tolist()) <= set(indices.tolist())
            assert torch.equal(weights, torch.where(losses[indices] > 1, 1.0, 4.0))
            assert len(indices) < 40


def test_forgetting_counts_flips_and_what_was_never_learnt_comes_first() -> None:
    history = torch.tensor([[1, 1, 0, 1], [0, 1, 0, 1], [1, 1, 0, 0], [0, 1, 0, 0]])
    assert select("forgetting", history=history, k=3, seed=0)[0].tolist() == [2, 0, 3]


def test_equal_scores_are_decided_by_the_seed() -> None:
    found = {
        tuple(select("rho", losses=[1.0] * 8, irreducible_losses=[0.0] * 8, k=3, seed=seed)[0].tolist()) for seed in range(9)
    }
    assert len(found) > 4


def test_glister_picks_steps_along_the_validation_gradient_and_asks_again() -> None:
    gradients = torch.eye(3).repeat(4, 1)
    start = torch.tensor([3.0, 2.0, 1.0])
    fixed, _ = select("glister", gradients=gradients, validation_gradient=start, k=4, seed=0)
    assert set((fixed % 3).tolist()) == {0}
    # A loss |start - step|^2 / 2: what was gained is no longer to gain.
    moving, _ = select(
        "glister", gradients=gradients, validation_gradient=lambda step: start - step, k=6, seed=0, lr=1.0, refresh=1
    )
    assert np.bincount((moving % 3).numpy(), minlength=3).tolist() == [3, 2, 1]


def test_glister_goes_on_from_what_is_selected_and_takes_gradients_as_arrays() -> None:
    gradients, start = np.random.default_rng(0).normal(size=(30, 4)), np.array([1.0, -2.0, 0.5, 3.0])

    def after(step: torch.Tensor) -> np.ndarray:
        return np.asarray(start - step.numpy())

    options: dict[str, Any] = {"gradients": gradients, "validation_gradient": after, "seed": 0, "lr": 0.5, "refresh": 1}
    whole = select("glister", k=8, **options)[0].tolist()
    picked, step = list[int](), np.zeros(4)
    for _ in range(8):
        gains = gradients @ (start - step)
        gains[picked] = -np.inf
        picked.append(int(gains.argmax()))
        step += 0.5 * gradients[picked[-1]]
    assert whole == picked
    assert select("glister", k=5, selected=whole[:3], **options)[0].tolist() == whole[3:]
