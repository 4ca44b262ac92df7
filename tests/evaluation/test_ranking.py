"""Metrics of rankings against scikit-learn and all orders of tied samples, their confidence, and their names."""

from itertools import permutations, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import sklearn.metrics as sk
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation import check_metrics, score
from modyn_dagster.evaluation.metrics.confidence import confidence_interval
from modyn_dagster.evaluation.metrics.losses import sample_losses
from modyn_dagster.evaluation.metrics.tasks import lists
from modyn_dagster.spec.tasks.metrics import MetricId, MetricName, lower_is_better
from modyn_dagster.spec.tasks.task import RankingTask
from modyn_dagster.spec.triggers.measured import Forecast
from modyn_dagster.triggering.policies.forecasts import ScoreForecast
from tests.examples import examples

Case = tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]
METRICS = ["ndcg", "ndcg_2", "reciprocal_rank", "average_precision"]
TASK = RankingTask(kind="ranking", group="query")


@st.composite
def rankings(draw: st.DrawFn, longest: int = 5) -> Case:
    """Lists in any order of their rows, with ties of scores and of relevance, some without a relevant sample."""
    rows = [
        (draw(st.integers(0, 3)), draw(st.sampled_from([0, 0, 1, 2, 0.5, 31])), group)
        for group in draw(st.lists(st.sampled_from([0.0, -7.0, 3.0, 2.0**53, 2.0**53 - 1]), min_size=1, max_size=4, unique=True))
        for _ in range(draw(st.integers(1, longest)))
    ]
    scores, *truth = zip(*draw(st.permutations(rows)), strict=True)
    return np.array(scores, np.float32)[:, None] / 4, np.array(truth, np.float64).T


def by_list(case: Case) -> list[Case]:
    outputs, truth = case
    return [(outputs[truth[:, 1] == group], truth[truth[:, 1] == group]) for group in np.unique(truth[:, 1])]


def of_order(metric: str, relevance: list[float]) -> float:
    """Value of one order of a list, by the definition."""
    if metric.startswith("ndcg"):
        k = 2 if metric == "ndcg_2" else len(relevance)

        def gain(order: list[float]) -> float:
            return float(sum((2**each - 1) / np.log2(rank + 1) for rank, each in enumerate(order[:k], start=1)))

        return gain(relevance) / gain(sorted(relevance, reverse=True))
    ranks = [rank for rank, each in enumerate(relevance, start=1) if each > 0]
    if metric == "reciprocal_rank":
        return 1 / ranks[0]
    return float(np.mean([count / rank for count, rank in enumerate(ranks, start=1)]))


def expected(metric: str, outputs: npt.NDArray[np.float32], truth: npt.NDArray[np.float64]) -> float:
    """Mean over all orders in which the scores descend."""
    ties = [truth[outputs[:, 0] == value, 0].tolist() for value in np.unique(outputs)[::-1]]
    orders = product(*(permutations(tie) for tie in ties))
    return float(np.mean([of_order(metric, [each for tie in order for each in tie]) for order in orders]))


@settings(max_examples=examples(60))
@given(rankings(), st.sampled_from(METRICS))
def test_a_metric_is_the_mean_over_lists_of_its_expectation_over_all_orders_of_ties(case: Case, metric: str) -> None:
    values = [expected(metric, *one) for one in by_list(case) if (one[1][:, 0] > 0).any()]
    found = score(metric, *case)
    if not values:
        assert found.reason == "no group has a relevant sample"
    else:
        assert found.value == pytest.approx(np.mean(values))
        assert found.n == len(case[0])


@settings(max_examples=examples(60))
@given(rankings(longest=9), st.sampled_from([None, 1, 3, 20]))
def test_gains_agree_with_scikit_learn_with_ties_and_cutoff(case: Case, cutoff: int | None) -> None:
    long = [(outputs, truth) for outputs, truth in by_list(case) if len(truth) > 1 and truth[:, 0].any()]
    for outputs, truth in long:
        reference = sk.ndcg_score([np.exp2(truth[:, 0]) - 1], [outputs[:, 0]], k=cutoff)
        assert lists.ndcg(outputs, truth, cutoff) == pytest.approx([reference])


@settings(max_examples=examples(30))
@given(st.lists(st.booleans(), min_size=1, max_size=30).filter(any), st.data())
def test_values_of_lists_without_ties_agree_with_scikit_learn(relevant: list[bool], data: st.DataObject) -> None:
    scores = np.array(data.draw(st.permutations(range(len(relevant)))), np.float32)[:, None]
    truth = np.column_stack([relevant, np.zeros(len(relevant))])
    assert score("average_precision", scores, truth).value == pytest.approx(sk.average_precision_score(relevant, scores))
    first = sk.label_ranking_average_precision_score([np.eye(len(relevant))[_first(scores, relevant)]], scores.T)
    assert score("reciprocal_rank", scores, truth).value == pytest.approx(first)


def _first(scores: npt.NDArray[np.float32], relevant: list[bool]) -> int:
    """Relevant sample with the highest score."""
    return int(np.argmax(np.where(relevant, scores[:, 0], -1)))


@settings(max_examples=examples(30))
@given(rankings(), st.sampled_from(METRICS), st.integers(0, 9))
def test_the_order_of_the_rows_does_not_matter(case: Case, metric: str, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(case[0]))
    one, other = score(metric, *case), score(metric, case[0][order], case[1][order])
    assert one.reason == other.reason
    assert one.value is None or one.value == pytest.approx(other.value, abs=1e-12)


def test_confidence_draws_whole_lists() -> None:
    outputs = np.tile(np.array([2, 1, 0], np.float32), 8)[:, None]
    groups, relevance = np.repeat(np.arange(8.0), 3), np.tile([0.0, 1.0, 0.0], 8)
    interval = confidence_interval("reciprocal_rank", outputs, np.column_stack([relevance, groups]))
    assert interval is not None
    assert (interval.low, interval.high, interval.method) == (0.5, 0.5, "bootstrap")
    # Half of the lists begin with their relevant sample: the mean of 8 draws of 0.5 and 1.
    relevance[3 * np.arange(4)], relevance[3 * np.arange(4) + 1] = 1.0, 0.0
    low, high, _ = confidence_interval("reciprocal_rank", outputs, np.column_stack([relevance, groups])) or (0, 0, "")
    draws = np.random.default_rng(5).choice([0.5, 1.0], (20_000, 8)).mean(axis=1)
    assert [low, high] == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.07)


def test_rankings_without_a_value_have_no_confidence() -> None:
    truth = np.zeros((4, 2))
    assert confidence_interval("ndcg", np.zeros((4, 1), np.float32), truth) is None
    truth[:, 0] = 1
    assert confidence_interval("ndcg", np.array([[1], [np.nan], [2], [0]], np.float32), truth) is None


def test_a_truth_without_groups_and_a_missing_relevance_fail_their_cell() -> None:
    outputs = np.zeros((2, 1), np.float32)
    assert score("ndcg", outputs, np.ones(2)).reason == (
        "failed: the truth is one value per sample; relevance and group are needed"
    )
    assert score("ndcg", outputs, np.array([[1.0, 1.0], [np.nan, 1.0]])).reason == "failed: a target is NaN"


def test_a_sample_of_a_ranking_has_no_loss_of_its_own() -> None:
    assert np.isnan(sample_losses(np.zeros((2, 1), np.float32), np.ones((2, 2)), "target", TASK)).all()


def test_metrics_of_rankings_have_names() -> None:
    check_metrics(["ndcg_10", *METRICS], "ranking", source="pipeline p")
    with pytest.raises(ConfigError, match=r"the task is ranking: use ndcg, ndcg_10, reciprocal_rank, average_precision"):
        check_metrics(["mae"], "ranking", source="pipeline p")
    with pytest.raises(ConfigError, match=r"the dataset's label is a target: use mae, mse, r2"):
        check_metrics(["ndcg_10"], "target", source="pipeline p")
    kinds: list[Any] = [MetricId, MetricName]
    for kind in kinds:
        names = TypeAdapter[str](kind)
        assert [names.validate_python(name) for name in METRICS] == METRICS
        for wrong in ("ndcg_0", "ndcg_", "ndcg_x", "reciprocal_rank_3"):
            with pytest.raises(ValidationError):
                names.validate_python(wrong)
    assert not any(lower_is_better(name) for name in METRICS)


def test_a_forecast_of_a_gain_stays_below_1() -> None:
    forecast = ScoreForecast(Forecast(method="ridge", window=3), "ndcg_10")
    assert [forecast.update(value) for value in (0.5, 0.8, 0.99)][-1] == 1.0
