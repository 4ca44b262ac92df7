"""Greedy maximisation: the same picks lazily, as good as promised, and as others find them."""

import contextlib
import io
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modyn_dagster.training.downsampling import select
from modyn_dagster.training.downsampling.solvers.similarity import Similarity
from tests.examples import examples

METRICS = {
    "facility_location": ["euclidean", "cosine", "rbf", "dot"],
    "graph_cut": ["euclidean", "cosine", "rbf"],
    "log_det": ["cosine", "rbf", "dot"],
}


def value_of(name: str, s: np.ndarray, members: list[int]) -> float:
    if not members:
        return 0.0
    inside = s[np.ix_(members, members)]
    if name == "facility_location":
        return float(s[:, members].max(1).sum())
    if name == "graph_cut":
        return float(2 * s[:, members].sum() - inside.sum())
    return float(np.linalg.slogdet(inside + np.eye(len(members)))[1])


def kernel(n: int, seed: int) -> np.ndarray:
    """At least 0 and positive definite."""
    points = np.random.default_rng(seed).normal(size=(n, 3))
    return np.asarray(np.exp(-((points[:, None] - points) ** 2).sum(-1)))


@pytest.mark.parametrize("name", METRICS)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 40), copies=st.booleans())
@settings(max_examples=examples(15), deadline=None)
def test_lazy_greedy_is_naive_greedy(name: str, seed: int, n: int, copies: bool) -> None:
    points = np.random.default_rng(seed).normal(size=(n, 4))
    if copies:
        points = np.round(points)
    k = 1 + seed % n
    for metric in METRICS[name]:
        one, other = (select(name, embeddings=points, k=k, seed=0, metric=metric, greedy=how)[0] for how in ("naive", "lazy"))
        assert one.tolist() == other.tolist()


@pytest.mark.parametrize("block_bytes", [1, 4_000, 100_000])
def test_lazy_greedy_is_naive_greedy_when_rows_are_made_in_blocks(block_bytes: int) -> None:
    points = torch.randn(200, 8, generator=torch.Generator().manual_seed(1))
    whole = select("facility_location", embeddings=points, k=20, seed=0, greedy="naive")[0]
    blocks = select("facility_location", embeddings=points, k=20, seed=0, block_bytes=block_bytes)[0]
    assert blocks.tolist() == whole.tolist()
    weights = [select("craig", gradients=points, k=20, seed=0, block_bytes=size)[1] for size in (block_bytes, 1 << 30)]
    assert weights[0].tolist() == weights[1].tolist()


@pytest.mark.long
@pytest.mark.parametrize(("metric", "n"), [*((metric, 300) for metric in METRICS["facility_location"]), ("euclidean", 2100)])
def test_lazy_greedy_is_naive_greedy_when_what_counts_of_every_row_is_kept_after_a_while(metric: str, n: int) -> None:
    """Also in float32, in which larger pools are compared."""
    points = torch.randn(n, 5, generator=torch.Generator().manual_seed(2))
    one, other = (
        select("facility_location", embeddings=points, k=12, seed=0, metric=metric, block_bytes=n * n, greedy=how)[0]
        for how in ("naive", "lazy")
    )
    assert one.tolist() == other.tolist()


@given(seed=st.integers(0, 10_000), n=st.integers(2, 60), share=st.floats(0, 1))
@settings(max_examples=examples(25), deadline=None)
def test_what_is_above_a_rising_level_says_the_same_as_whole_rows(seed: int, n: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    features = torch.from_numpy(rng.normal(size=(n, 3)))
    # Too little memory for the whole matrix, and now and then for what is above.
    found, whole = (Similarity(features, "cosine", block_bytes=size) for size in (8 * n * (n - 1), 8 * n * n))
    rows, level = np.array([whole.row(j) for j in range(n)]), rng.random(n) * share
    np.testing.assert_allclose(found.sums_above(level), np.maximum(rows - level, 0).sum(axis=1), rtol=1e-12, atol=1e-12)
    for j in rng.integers(n, size=10).tolist():
        assert found.sum_above(j, level) == pytest.approx(float(np.maximum(rows[j] - level, 0).sum()), rel=1e-12, abs=1e-12)
        expected = np.maximum(level, rows[j])
        found.raise_level(level, j)
        np.testing.assert_allclose(level, expected, rtol=1e-12)


def test_rows_that_fit_are_computed_no_more() -> None:
    points = torch.randn(400, 8, generator=torch.Generator().manual_seed(0))
    found, whole = (Similarity(points, "euclidean", block_bytes=size) for size in (400 * 400, 8 * 400 * 400))
    level = np.quantile([whole.row(j) for j in range(400)], 0.95, axis=0)
    found.sums_above(level - 1)
    found.sum_above(0, level)
    assert found.n_rows_computed > 0, "these do not fit"
    found.sums_above(level)
    for j in range(400):
        found.sum_above(j, level)
    assert found.n_rows_computed == 0


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("seed", range(6))
def test_greedy_reaches_its_share_of_the_optimum(name: str, seed: int) -> None:
    n, k = 11, 4
    s = kernel(n, seed)
    found = select(name, n=n, similarities=s, k=k, seed=0)[0].tolist()
    best = max(value_of(name, s, list(members)) for members in itertools.combinations(range(n), k))
    assert value_of(name, s, found) >= (1 - 1 / math.e) * best - 1e-9


@pytest.mark.parametrize("name", METRICS)
def test_every_pick_adds_the_most_and_gains_shrink(name: str) -> None:
    s, picked, before = kernel(25, 3), list[int](), math.inf
    for j in select(name, n=25, similarities=s, k=10, seed=0)[0].tolist():
        now = value_of(name, s, picked)
        gains = {i: value_of(name, s, [*picked, i]) - now for i in range(25) if i not in picked}
        assert gains[j] >= max(gains.values()) - 1e-9
        assert gains[j] <= before + 1e-9
        before = gains[j]
        picked.append(j)


@pytest.mark.parametrize("name", METRICS)
def test_stochastic_greedy_comes_close_to_the_whole_greedy(name: str) -> None:
    s = kernel(60, 4)
    exact = value_of(name, s, select(name, n=60, similarities=s, k=8, seed=0)[0].tolist())
    for seed in range(5):
        found = select(name, n=60, similarities=s, k=8, seed=seed, greedy="stochastic", epsilon=0.05)[0]
        assert value_of(name, s, found.tolist()) >= 0.8 * exact


@pytest.mark.parametrize("name", METRICS)
def test_what_is_selected_already_counts_and_is_not_chosen_again(name: str) -> None:
    s = kernel(30, 5)
    whole = select(name, n=30, similarities=s, k=9, seed=0)[0].tolist()
    assert select(name, n=30, similarities=s, k=5, seed=0, selected=whole[:4])[0].tolist() == whole[4:]


# Since Python 3.12 backslashes in its docstrings are warned of when it is compiled.
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("seed", range(3))
def test_facility_location_and_graph_cut_agree_with_apricot(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import numba  # type: ignore[import-untyped]  # numba has no types

    # To compile its loops takes seconds, to interpret them for so few samples takes none.
    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)
    from apricot import FacilityLocationSelection, GraphCutSelection

    s = kernel(80, seed)
    theirs = FacilityLocationSelection(15, metric="precomputed", optimizer="naive").fit(s)
    ours = select("facility_location", n=80, similarities=s, k=15, seed=0)[0].tolist()
    assert ours == theirs.ranking.tolist()
    cut = GraphCutSelection(15, metric="precomputed", optimizer="naive", alpha=2).fit(s)
    assert select("graph_cut", n=80, similarities=s, k=15, seed=0)[0].tolist() == cut.ranking.tolist()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("seed", range(3))
def test_facility_location_graph_cut_and_log_determinant_agree_with_submodlib(seed: int) -> None:
    pytest.importorskip("submodlib", reason="it has no wheel for this Python")
    from submodlib import FacilityLocationFunction, GraphCutFunction, LogDeterminantFunction

    # Unequal on the diagonal too, or every first pick of a determinant is as good as any other.
    size = np.linspace(1, 2, 50)[np.random.default_rng(seed).permutation(50)]
    s = size[:, None] * kernel(50, seed) * size
    theirs = {
        "facility_location": FacilityLocationFunction(n=50, mode="dense", sijs=s, separate_rep=False),
        "graph_cut": GraphCutFunction(n=50, mode="dense", lambdaVal=0.5, ggsijs=s, separate_rep=False),
        "log_det": LogDeterminantFunction(n=50, mode="dense", lambdaVal=1, sijs=s),
    }
    for name, function in theirs.items():
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            picks = function.maximize(budget=10, optimizer="NaiveGreedy", stopIfZeroGain=False, stopIfNegativeGain=False)
        ours = select(name, n=50, similarities=s, k=10, seed=0)[0].tolist()
        assert ours == [j for j, _ in picks], name


@given(seed=st.integers(0, 10_000))
@settings(max_examples=examples(25), deadline=None)
def test_k_center_is_within_twice_the_smallest_radius(seed: int) -> None:
    points = torch.from_numpy(np.random.default_rng(seed).normal(size=(10, 2)))
    apart = torch.cdist(points, points)
    centres = select("k_center", embeddings=points, k=3, seed=seed)[0]
    best = min(float(apart[list(members)].min(0).values.max()) for members in itertools.combinations(range(10), 3))
    assert float(apart[centres].min(0).values.max()) <= 2 * best + 1e-9


def test_k_center_takes_the_farthest_and_starts_at_what_is_selected() -> None:
    line = [[0.0], [1.0], [10.0], [4.0]]
    assert select("k_center", embeddings=line, k=2, seed=0, selected=[0])[0].tolist() == [2, 3]


def test_k_center_chooses_exactly_k_even_of_copies() -> None:
    assert sorted(select("k_center", embeddings=torch.zeros(6, 2), k=6, seed=0)[0].tolist()) == list(range(6))


def test_herding_keeps_the_running_mean_close_to_the_class_mean() -> None:
    rng = np.random.default_rng(0)
    points, labels = rng.normal(size=(60, 3)), np.arange(60) % 2
    found = select("herding", embeddings=points, labels=labels, k=10, seed=0)[0].tolist()
    for label in (0, 1):
        members, picked = np.flatnonzero(labels == label), list[int]()
        for j in (j for j in found if labels[j] == label):
            apart = {
                i: np.linalg.norm(points[[*picked, i]].mean(0) - points[members].mean(0)) for i in members if i not in picked
            }
            assert apart[j] <= min(apart.values()) + 1e-9
            picked.append(j)
        assert len(picked) == 5
