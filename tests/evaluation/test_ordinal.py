"""Metrics of classes with an order against scikit-learn and brute force, and the loss that they go with."""

import warnings

import numpy as np
import numpy.typing as npt
import pytest
import sklearn.metrics as sk
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation import check_metrics, score
from modyn_dagster.evaluation.metrics.confidence import score_resamples
from modyn_dagster.evaluation.metrics.evaluation_samples import EvaluationSamples
from modyn_dagster.evaluation.metrics.losses import ranked_probability_scores, sample_losses
from modyn_dagster.evaluation.metrics.registry import METRICS, score_parts, score_slice
from modyn_dagster.spec.tasks.metrics import lower_is_better
from modyn_dagster.spec.tasks.task import OrdinalTask
from modyn_dagster.training.models.losses import ranked_probability
from tests.examples import examples

Outputs = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
Case = tuple[Outputs, Labels]

ORDINAL = ["rank_mae", "quadratic_kappa", "ranked_probability"]
LOGITS = st.integers(-12, 12).map(lambda i: np.float32(i / 4))


@st.composite
def ranked(draw: st.DrawFn) -> Case:
    n, k = draw(st.integers(1, 30)), draw(st.integers(3, 5))
    return draw(hnp.arrays(np.float32, (n, k), elements=LOGITS)), draw(hnp.arrays(np.int64, n, elements=st.integers(0, k - 1)))


def brute_force(outputs: Outputs, truth: Labels) -> npt.NDArray[np.float64]:
    """Ranked probability scores, one cumulated probability after the other."""
    scores = []
    for logits, label in zip(outputs.astype(np.float64), truth.tolist()):
        shares = np.exp(logits) / np.exp(logits).sum()
        steps = [(shares[: k + 1].sum() - (label <= k)) ** 2 for k in range(len(logits) - 1)]
        scores.append(sum(steps) / len(steps))
    return np.array(scores)


@settings(max_examples=examples(40))
@given(ranked())
def test_the_mean_distance_of_ranks_agrees_with_scikit_learn(case: Case) -> None:
    outputs, truth = case
    assert score("rank_mae", outputs, truth).value == pytest.approx(sk.mean_absolute_error(truth, outputs.argmax(1)))


@settings(max_examples=examples(40))
@given(ranked())
def test_the_quadratic_kappa_agrees_with_scikit_learn(case: Case) -> None:
    outputs, truth = case
    predicted, found = outputs.argmax(1), score("quadratic_kappa", outputs, truth)
    if len({*truth.tolist(), *predicted.tolist()}) == 1:
        assert found.undefined == f"all samples and predictions are of class {truth[0]}"
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = sk.cohen_kappa_score(truth, predicted, weights="quadratic", labels=np.arange(outputs.shape[1]))
    assert found.value == pytest.approx(expected)


@settings(max_examples=examples(40))
@given(ranked())
def test_the_score_of_ranked_probabilities_is_that_of_their_sums_and_equals_the_loss(case: Case) -> None:
    outputs, truth = case
    expected = brute_force(outputs, truth)
    np.testing.assert_allclose(ranked_probability_scores(outputs, truth), expected, atol=1e-12)
    np.testing.assert_allclose(ranked_probability(torch.from_numpy(outputs), torch.from_numpy(truth)), expected, atol=1e-6)
    np.testing.assert_allclose(sample_losses(outputs, truth, "class", OrdinalTask(kind="ordinal")), expected, atol=1e-6)
    assert score("ranked_probability", outputs, truth).value == pytest.approx(expected.mean())


@pytest.mark.parametrize("truth", range(4))
def test_no_forecast_is_better_on_average_than_the_true_distribution(truth: int) -> None:
    """The score is proper: of noisy forecasts of a distribution, the distribution itself has the least expected score."""
    rng = np.random.default_rng(truth)
    shares = rng.dirichlet(np.ones(5))

    def expected(forecast: npt.NDArray[np.float64]) -> float:
        logits = np.tile(np.log(forecast).astype(np.float32), (5, 1))
        return float(shares @ ranked_probability_scores(logits, np.arange(5)))

    others = [expected(rng.dirichlet(np.ones(5))) for _ in range(50)]
    assert expected(shares) < min(others)


@settings(max_examples=examples(30))
@given(ranked(), st.sampled_from(ORDINAL), st.data())
def test_slices_together_have_the_bits_of_slices_alone_and_resamples_their_scores(
    case: Case, metric: str, data: st.DataObject
) -> None:
    outputs, truth = case
    samples, n = EvaluationSamples(outputs, truth), len(truth)
    ends = data.draw(st.lists(st.tuples(st.integers(0, n), st.integers(0, n)).map(sorted), min_size=1, max_size=4))
    parts = [slice(*each) for each in ends]
    together = score_parts(METRICS[metric], samples, parts, [0] * len(parts), min_samples=1)
    assert together == [score_slice(METRICS[metric], samples, part, 0, min_samples=1) for part in parts]
    rows = np.random.default_rng(0).integers(0, n, (3, n))
    expected = [score(metric, outputs[drawn], truth[drawn]).value for drawn in rows]
    found = score_resamples(METRICS[metric], samples, rows)
    np.testing.assert_allclose(found, [np.nan if each is None else each for each in expected], atol=1e-12)


@pytest.mark.parametrize("metric", ORDINAL)
def test_a_class_that_the_model_does_not_know_has_no_rank(metric: str) -> None:
    found = score(metric, np.eye(3, dtype=np.float32), np.array([0, 1, 7]))
    assert found.value is None
    assert found.reason == "failed: a sample is of class 7, the model knows 3 classes"


def test_metrics_of_an_order_are_for_the_ordinal_task_alone_and_those_of_classes_for_both() -> None:
    check_metrics([*ORDINAL, "accuracy", "f1_macro"], "ordinal", source="pipeline p")
    for metric in ORDINAL:
        with pytest.raises(ConfigError, match=rf"evaluation\.metrics.*the dataset's label is a class.*{metric}"):
            check_metrics([metric], "class", source="pipeline p")
    with pytest.raises(ConfigError, match=r"the task is ordinal: use accuracy, .*rank_mae, quadratic_kappa"):
        check_metrics(["mae"], "ordinal", source="pipeline p")
    assert [lower_is_better(metric) for metric in ORDINAL] == [True, False, True]
