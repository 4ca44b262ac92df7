"""Weighted sums over what was drawn are, on average, the sums over the pool."""

from typing import Any

import numpy as np
import pytest
import torch

from modyn_dagster.training.downsampling import select
from modyn_dagster.training.downsampling.draws import inclusion_probabilities, without_replacement
from tests.examples import examples
from tests.training.downsampling.pools import assert_mean, assert_unbiased, everything

ESTIMATORS: list[tuple[str, dict[str, Any]]] = [
    ("uniform", {}),
    ("uniform", {"balance": "equal"}),
    ("loss", {}),
    ("loss", {"replacement": False}),
    ("loss", {"balance": "equal"}),
    ("dlis", {"start": "always"}),
    ("dlis", {"start": "always", "replacement": False}),
    ("dlis", {"start": "always", "balance": "proportional"}),
    ("rs2", {"epoch": 3}),
    ("rs2_without_replacement", {"epoch": 2}),
    ("rs2_without_replacement", {"epoch": 3}),
    ("infobatch", {}),
    ("infobatch", {"ratio": 0.9}),
    ("infobatch", {"balance": "equal"}),
]
IDS = [f"{name}-{'-'.join(map(str, options.values())) or 'default'}" for name, options in ESTIMATORS]


@pytest.mark.law
@pytest.mark.parametrize(("name", "options"), ESTIMATORS, ids=IDS)
def test_weighted_sums_are_unbiased_for_values_that_have_nothing_to_do_with_the_scores(
    name: str, options: dict[str, Any]
) -> None:
    values = torch.randn(23, generator=torch.Generator().manual_seed(5)) + 0.3
    assert_unbiased(name, everything(23), values, k=9, draws=examples(400), **options)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param(*each, id=name, marks=[pytest.mark.soak("laws-training")] * (number % 3 > 0))
        for number, (each, name) in enumerate(zip(ESTIMATORS, IDS, strict=True))
    ],
)
def test_weights_sum_to_the_size_of_the_pool_in_expectation(name: str, options: dict[str, Any]) -> None:
    inputs = everything(23)
    sums = [float(select(name, k=9, seed=seed, **inputs, **options)[1].double().sum()) for seed in range(400)]
    assert_mean(np.array(sums), 23.0)


@pytest.mark.law
def test_sums_of_gradients_are_unbiased_under_importance_sampling() -> None:
    inputs = everything(30)
    gradients = inputs["gradients"]
    for axis in range(2):
        assert_unbiased("dlis", inputs, gradients[:, axis], k=6, draws=examples(750), start="always")


def test_weights_with_replacement_are_one_over_k_q() -> None:
    losses = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    indices, weights = select("loss", losses=losses, k=50, seed=3)
    torch.testing.assert_close(weights, 8 / (50 * losses[indices]))
    assert set(indices.tolist()) == {0, 1, 2}


@pytest.mark.parametrize("k", [1, 3, 7, 11, 12])
def test_inclusion_probabilities_sum_to_k_and_grow_with_the_score_up_to_1(k: int) -> None:
    q = np.random.default_rng(k).exponential(size=12) ** 3
    pi = inclusion_probabilities(q / q.sum(), k)
    assert pi.sum() == pytest.approx(k)
    assert (pi <= 1).all()
    factors = (pi / q)[pi < 1]
    assert np.ptp(factors) < 1e-9 * factors.max() if len(factors) else k == 12


def test_systematic_draws_include_everyone_as_often_as_promised() -> None:
    q = np.array([0.5, 0.2, 0.1, 0.1, 0.06, 0.04])
    pi, counts = inclusion_probabilities(q, 3), np.zeros(6)
    for seed in range(4000):
        indices, weights = without_replacement(q, 3, np.random.default_rng(seed))
        assert len(set(indices.tolist())) == 3
        np.testing.assert_allclose(weights, 1 / pi[indices])
        counts[indices] += 1
    error = np.sqrt(pi * (1 - pi) / 4000)
    assert (np.abs(counts / 4000 - pi) <= 4 * error + 1e-12).all()


def test_a_sample_with_score_0_can_be_drawn_and_its_weight_is_bounded() -> None:
    losses = torch.tensor([0.0, 1.0, 1.0, 1.0])
    assert_unbiased("loss", {"losses": losses}, torch.tensor([0.0, 1.0, 2.0, 3.0]), k=2, draws=500, floor=0.1)
    weights = [float(select("loss", losses=losses, k=1, seed=seed, floor=0.1)[1].max()) for seed in range(300)]
    assert 4 < max(weights) <= 4 * 1.1 / 0.1


def test_before_the_start_dlis_is_uniform_with_weight_1() -> None:
    """Equal scores leave nothing to gain."""
    logits = torch.zeros(100, 5)
    indices, weights = select("dlis", logits=logits, labels=torch.arange(100) % 5, k=20, seed=0)
    assert len(set(indices.tolist())) == 20
    assert weights.tolist() == [1.0] * 20


def test_dlis_starts_when_tau_passes_what_the_second_forward_pass_costs() -> None:
    """Two of 100 samples have all of the gradient: tau is about 7, above (100 + 3 * 20) / 60."""
    logits = torch.full((100, 2), -50.0)
    logits[:, 0] = 50
    labels = torch.zeros(100, dtype=torch.int64)
    labels[:2] = 1
    indices, weights = select("dlis", logits=logits, labels=labels, k=20, seed=0)
    assert set(indices.tolist()) <= {0, 1, *range(100)}
    assert float((indices < 2).float().mean()) > 0.9
    assert float(weights[indices < 2][0]) == pytest.approx(2 / 20, rel=0.01)


@pytest.mark.parametrize(("n", "k"), [(10, 4), (10, 10), (7, 3), (12, 5), (5, 4), (9, 1)])
def test_rs2_without_replacement_uses_every_sample_once_before_any_again(n: int, k: int) -> None:
    walk = torch.cat([select("rs2_without_replacement", n=n, k=k, seed=1, epoch=epoch)[0] for epoch in range(3 * n)])
    for number in range(len(walk) // n):
        assert sorted(walk[number * n : (number + 1) * n].tolist()) == list(range(n))
    for epoch in range(3 * n):
        assert len(set(walk[epoch * k : (epoch + 1) * k].tolist())) == k
