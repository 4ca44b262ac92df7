"""Metrics of models without a label, against formulas by brute force."""

from itertools import combinations
from typing import get_args

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.metrics.confidence import confidence_interval
from modyn_dagster.evaluation.metrics.losses import sample_losses
from modyn_dagster.evaluation.metrics.registry import check_metrics, metrics_of, score
from modyn_dagster.spec.tasks.metrics import lower_is_better
from modyn_dagster.spec.tasks.objectives import UnlabelledKind
from modyn_dagster.spec.triggers.measured import Forecast
from modyn_dagster.triggering.policies.forecasts import ScoreForecast

Measures = npt.NDArray[np.float32]


def drawn(seed: int, shape: tuple[int, ...]) -> Measures:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def value(metric: str, measures: Measures) -> float:
    found = score(metric, measures, np.zeros(len(measures))).value
    assert found is not None
    return found


@given(st.integers(0, 2**20), st.integers(2, 30))
def test_alignment_and_uniformity_are_those_of_all_views_and_pairs(seed: int, n: int) -> None:
    views = drawn(seed, (n, 2, 3)).astype(np.float64)
    views /= np.linalg.norm(views, axis=2, keepdims=True)
    measures = drawn(seed, (n, 6))
    aligned = np.mean([np.square(first - second).sum() for first, second in views])
    pairs = [np.exp(-2 * np.square(views[i, 0] - views[j, 0]).sum()) for i, j in combinations(range(n), 2)]
    assert value("alignment", measures) == pytest.approx(aligned, rel=1e-6)
    assert value("uniformity", measures) == pytest.approx(np.log(np.mean(pairs)), rel=1e-6, abs=1e-9)


def test_samples_are_compared_with_those_around_them_alone() -> None:
    measures = drawn(1, (500, 8))
    halves = [value("nt_xent", part) for part in (measures[:250], measures[250:])]
    assert value("nt_xent", measures) == pytest.approx(np.mean(halves), rel=1e-12)


@given(st.integers(0, 2**20), st.integers(1, 20))
def test_texts_weigh_by_their_tokens(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(1, 9, n)
    entropies = rng.exponential(size=(n, 9))
    sums = np.array([row[:k].sum() for row, k in zip(entropies, tokens, strict=True)])
    right = np.array([rng.integers(0, k + 1) for k in tokens])
    measures = np.stack([sums, right, tokens], axis=1).astype(np.float32)
    every = np.concatenate([row[:k] for row, k in zip(entropies, tokens, strict=True)])
    assert value("token_cross_entropy", measures) == pytest.approx(every.mean(), rel=1e-5)
    assert value("perplexity", measures) == pytest.approx(np.exp(every.mean()), rel=1e-5)
    assert value("token_accuracy", measures) == pytest.approx(right.sum() / tokens.sum())
    np.testing.assert_allclose(sample_losses(measures, np.zeros(n), "tokens"), sums / tokens, rtol=1e-5)


def test_a_single_sample_has_nobody_to_be_compared_with() -> None:
    for metric in ("nt_xent", "uniformity"):
        found = score(metric, drawn(0, (1, 4)), np.zeros(1))
        assert found.value is None
        assert found.undefined == "1 sample, and samples are compared with each other"


def test_texts_without_tokens_have_no_perplexity_and_no_loss() -> None:
    found = score("perplexity", np.zeros((3, 3), np.float32), np.zeros(3))
    assert found.undefined == "no token of these samples is predicted"
    assert sample_losses(np.zeros((3, 3), np.float32), np.zeros(3), "tokens").tolist() == [0, 0, 0]


def test_an_error_has_an_interval_and_a_metric_of_pairs_has_none() -> None:
    rows = np.abs(drawn(3, (50, 2)))
    interval = confidence_interval("reconstruction_mse", rows, np.zeros(50), resamples=200)
    assert interval is not None
    assert interval.low < value("reconstruction_mse", rows) < interval.high
    for metric in ("nt_xent", "uniformity"):
        assert confidence_interval(metric, rows, np.zeros(50), resamples=200) is None


def test_a_metric_says_what_it_needs() -> None:
    check_metrics(metrics_of("tokens"), "tokens", source="p")
    with pytest.raises(ConfigError, match=r"dataset has no label, and the task of training\.loss is tokens: use token_cross"):
        check_metrics(["accuracy"], "tokens", source="p")
    with pytest.raises(ConfigError, match="the dataset's label is a class: use accuracy"):
        check_metrics(["perplexity"], "class", source="p")
    with pytest.raises(
        ConfigError, match=r"task of training\.loss is reconstruction: use reconstruction_mse, reconstruction_mae"
    ):
        check_metrics(["alignment"], "reconstruction", source="p")


def measures_of(kind: UnlabelledKind, rng: np.random.Generator, n: int = 9) -> Measures:
    """Measures as a model's could be."""
    if kind == "contrastive":
        return rng.normal(size=(n, 6)).astype(np.float32)
    losses, tokens, spans = rng.exponential(size=(n, 2)), rng.integers(1, 9, n), rng.integers(1, 9, (n, 2))
    right = [rng.binomial(tokens, 0.5), rng.binomial(spans.min(axis=1), 0.5)]
    columns = [losses[:, 0], losses[:, 1]] if kind == "reconstruction" else [losses[:, 0], right[0], tokens, right[1], *spans.T]
    return np.asarray(np.stack(columns, axis=1), np.float32)


@given(st.sampled_from(get_args(UnlabelledKind)), st.integers(0, 2**20))
def test_one_score_is_its_own_forecast(kind: UnlabelledKind, seed: int) -> None:
    measures = measures_of(kind, np.random.default_rng(seed))
    for metric in metrics_of(kind):
        found = value(metric, measures)
        assert ScoreForecast(Forecast(method="ridge", window=3), metric).update(found) == pytest.approx(found)


def test_only_the_accuracy_of_tokens_is_to_rise() -> None:
    names = [name for kind in ("reconstruction", "contrastive", "tokens") for name in metrics_of(kind)]
    assert [name for name in names if not lower_is_better(name)] == ["token_accuracy"]
