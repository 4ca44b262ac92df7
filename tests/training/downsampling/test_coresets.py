"""CRAIG and GradMatch: weighted gradients that stand for everyone's."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from modyn_dagster.training.downsampling import select
from modyn_dagster.training.downsampling.solvers.matching_pursuit import InverseFactor
from tests.examples import examples

CORDS = Path(__file__).with_name("cords_omp.json")


def gradients_of(n: int, width: int, seed: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, width)) + 0.5)


def pursued(g: np.ndarray, k: int) -> dict[int, float]:
    """Matching pursuit as in its definition, the weights by scipy's non-negative least squares."""
    target, support, weights = g.mean(0), list[int](), np.empty(0)
    while len(support) < k:
        correlations = g @ (target - weights @ g[support])
        correlations[support] = -np.inf
        support.append(int(np.argmax(correlations)))
        weights = nnls(g[support].T, target)[0]
        support, weights = [j for j, w in zip(support, weights) if w > 0], weights[weights > 0]
    return dict(zip(support, weights.tolist()))


@pytest.mark.parametrize("seed", range(8))
def test_matching_pursuit_agrees_with_non_negative_least_squares_on_the_growing_support(seed: int) -> None:
    g = gradients_of(60, 30, seed)
    indices, weights = select("gradmatch", gradients=g, k=8, seed=0, lam=0.0)
    expected = pursued(g.numpy(), 8)
    found = dict(zip(indices.tolist(), (weights / 60).tolist()))
    assert found.keys() == expected.keys()
    np.testing.assert_allclose([found[j] for j in expected], list(expected.values()), rtol=1e-8)


@pytest.mark.parametrize("recorded", json.loads(CORDS.read_text()), ids=lambda recorded: f"seed{recorded['seed']}")
def test_matching_pursuit_agrees_with_cords(recorded: dict[str, Any]) -> None:
    """``OrthogonalMP_REG(A, b, nnz=10, positive=True, lam=0)`` of cords 0.0.4, recorded: it does not install beside ours."""
    g = gradients_of(60, 30, recorded["seed"])
    indices, weights = select("gradmatch", gradients=g, k=10, seed=0, lam=0.0)
    found = dict(zip(indices.tolist(), (weights / 60).tolist()))
    assert sorted(found) == recorded["support"]
    np.testing.assert_allclose([found[j] for j in recorded["support"]], recorded["weights"], rtol=1e-10)


@given(seed=st.integers(0, 1000), k=st.integers(1, 20), width=st.integers(3, 25))
@settings(max_examples=examples(30), deadline=None)
def test_a_factor_that_grows_solves_as_the_whole_matrix_does(seed: int, k: int, width: int) -> None:
    """Also after rows were taken out; a row in the span of others is refused."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(k, width))
    gram, right, factor = rows @ rows.T, rng.normal(size=k), InverseFactor(k)
    for m in range(k):
        factor.grow(gram, m)
    if k > width:
        assert factor.solve(gram, right) is None
        return
    found = factor.solve(gram, right)
    assert found is not None
    np.testing.assert_allclose(found, np.linalg.solve(gram, right), rtol=1e-5, atol=1e-7)
    gone = int(rng.integers(k))
    stay = [i for i in range(k) if i != gone]
    part = gram[np.ix_(stay, stay)]
    factor.rebuild(part, gone)
    found = factor.solve(part, right[stay])
    assert found is not None
    np.testing.assert_allclose(found, np.linalg.solve(part, right[stay]), rtol=1e-5, atol=1e-7)


def test_with_a_tiny_ridge_the_weights_are_spread_over_a_full_support() -> None:
    """More members than dimensions: without the ridge the first ones take everything."""
    g = gradients_of(80, 3, 1)
    indices, weights = select("gradmatch", gradients=g, k=20, seed=0)
    assert len(set(indices.tolist())) == 20
    assert int((weights > 0).sum()) > 10
    torch.testing.assert_close((weights[:, None] * g[indices]).sum(0), g.sum(0), rtol=1e-3, atol=1e-2)


def test_gradients_of_nothing_leave_nothing_to_match_and_weigh_alike() -> None:
    """A model that fits perfectly must not stop its training for want of a weight."""
    indices, weights = select("gradmatch", gradients=torch.zeros(12, 3), k=4, seed=0)
    assert len(set(indices.tolist())) == 4
    assert weights.tolist() == [3.0] * 4


def test_what_is_left_of_the_mean_shrinks_with_the_budget() -> None:
    g = gradients_of(100, 20, 2)
    left = []
    for k in range(1, 20):
        indices, weights = select("gradmatch", gradients=g, k=k, seed=0, lam=0.0)
        assert (weights >= 0).all()
        left.append(float(((weights[:, None] * g[indices]).sum(0) - g.sum(0)).norm()))
    assert all(after <= before + 1e-9 for before, after in itertools.pairwise(left))
    assert left[-1] < 0.2 * left[0]


@pytest.mark.parametrize("name", ["craig", "gradmatch"])
@given(seed=st.integers(0, 1000), exponent=st.integers(-12, 12))
@settings(max_examples=examples(20), deadline=None)
def test_scaling_all_gradients_changes_neither_set_nor_weights(name: str, seed: int, exponent: int) -> None:
    g = gradients_of(40, 6, seed)
    one, other = (select(name, gradients=found, k=7, seed=0) for found in (g, g * 10.0**exponent))
    assert one[0].tolist() == other[0].tolist()
    torch.testing.assert_close(one[1], other[1], rtol=1e-6, atol=1e-6)


@given(seed=st.integers(0, 1000), n=st.integers(3, 60), classes=st.integers(1, 3))
@settings(max_examples=examples(25), deadline=None)
def test_craig_weights_are_cluster_sizes_and_sum_to_the_pool(seed: int, n: int, classes: int) -> None:
    g, labels = gradients_of(n, 3, seed), torch.arange(n) % classes
    k = max(classes, n // 4)
    indices, weights = select("craig", gradients=g, labels=labels, k=k, seed=0)
    assert float(weights.sum()) == n
    assert len(set(indices.tolist())) == k
    for label in range(classes):
        centres = indices[labels[indices] == label]
        nearest = torch.cdist(g[labels == label], g[centres]).argmin(1)
        counts = torch.bincount(nearest, minlength=len(centres)).double()
        torch.testing.assert_close(weights[labels[indices] == label], counts)


def test_craig_maximises_what_its_definition_says() -> None:
    g = gradients_of(50, 4, 3)
    apart = torch.cdist(g, g)
    given_ = select("facility_location", n=50, similarities=apart.max() - apart, k=9, seed=0)[0]
    assert select("craig", gradients=g, k=9, seed=0)[0].tolist() == given_.tolist()


def test_without_gradients_those_of_the_last_layer_are_used() -> None:
    logits, labels = torch.randn(30, 3, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3
    last = torch.softmax(logits, 1) - torch.nn.functional.one_hot(labels, 3)
    for name in ("craig", "gradmatch"):
        one = select(name, logits=logits, labels=labels, k=6, seed=0)
        other = select(name, gradients=last, labels=labels, k=6, seed=0)
        assert one[0].tolist() == other[0].tolist()
