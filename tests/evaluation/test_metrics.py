import numpy as np
import numpy.typing as npt
import pytest
import sklearn.metrics as sk
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation import METRICS, Score, check_metrics, score
from modyn_dagster.evaluation.metrics.registry import find_metric
from modyn_dagster.spec.tasks.task import TASKS

Outputs = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
Targets = npt.NDArray[np.float64]

# Few distinct values, so that ties are common.
LOGITS = st.integers(-12, 12).map(lambda i: np.float32(i / 4))


@st.composite
def classified(draw: st.DrawFn, classes: st.SearchStrategy[int]) -> tuple[Outputs, Labels]:
    n, k = draw(st.integers(1, 40)), draw(classes)
    return draw(hnp.arrays(np.float32, (n, k), elements=LOGITS)), draw(hnp.arrays(np.int64, n, elements=st.integers(0, k - 1)))


@st.composite
def regressed(draw: st.DrawFn) -> tuple[Outputs, Targets]:
    n = draw(st.integers(1, 40))
    numbers = st.floats(-1000, 1000, width=32)
    return draw(hnp.arrays(np.float32, (n, 1), elements=numbers)), draw(hnp.arrays(np.float64, n, elements=numbers))


TWO, MANY, ANY = st.just(2), st.integers(3, 5), st.integers(2, 5)


def softmax(outputs: Outputs) -> npt.NDArray[np.float64]:
    powers = np.exp(outputs.astype(np.float64))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def value(metric: str, outputs: Outputs, truth: Labels | Targets) -> float:
    found = score(metric, outputs, truth)
    assert found.undefined is None
    assert found.value is not None
    assert found.n == len(truth)
    return found.value


@given(classified(ANY))
def test_accuracy_agrees_with_scikit_learn(case: tuple[Outputs, Labels]) -> None:
    outputs, truth = case
    assert value("accuracy", outputs, truth) == pytest.approx(sk.accuracy_score(truth, outputs.argmax(1)))


@given(classified(TWO))
def test_f1_of_two_classes_agrees_with_scikit_learn(case: tuple[Outputs, Labels]) -> None:
    outputs, truth = case
    predicted = outputs.argmax(1)
    if not truth.any() and not predicted.any():
        assert score("f1", outputs, truth).undefined == "neither a sample nor a prediction of class 1"
    else:
        assert value("f1", outputs, truth) == pytest.approx(sk.f1_score(truth, predicted))


@given(classified(MANY))
def test_f1_of_more_classes_agrees_with_scikit_learn_and_torchmetrics(case: tuple[Outputs, Labels]) -> None:
    from torchmetrics.functional.classification import multiclass_f1_score

    outputs, truth = case
    found = value("f1", outputs, truth)
    assert found == pytest.approx(sk.f1_score(truth, outputs.argmax(1), average="macro"))
    theirs = multiclass_f1_score(torch.from_numpy(outputs.argmax(1)), torch.from_numpy(truth), num_classes=outputs.shape[1])
    assert found == pytest.approx(theirs.item(), rel=1e-5)


@given(classified(ANY))
def test_log_loss_agrees_with_scikit_learn(case: tuple[Outputs, Labels]) -> None:
    outputs, truth = case
    expected = sk.log_loss(truth, softmax(outputs), labels=np.arange(outputs.shape[1]))
    assert value("log_loss", outputs, truth) == pytest.approx(expected)


@given(classified(TWO))
def test_roc_auc_of_two_classes_agrees_with_scikit_learn(case: tuple[Outputs, Labels]) -> None:
    outputs, truth = case
    if len(np.unique(truth)) == 1:
        assert score("roc_auc", outputs, truth).undefined == f"all samples are of class {truth[0]}"
    else:
        assert value("roc_auc", outputs, truth) == pytest.approx(sk.roc_auc_score(truth, outputs[:, 1] - outputs[:, 0]))


@given(classified(MANY))
def test_roc_auc_of_more_classes_is_the_mean_of_each_that_occurs_against_the_rest(case: tuple[Outputs, Labels]) -> None:
    outputs, truth = case
    classes = np.unique(truth)
    assume(len(classes) > 1)

    def area(c: int) -> float:
        powers = np.exp(outputs.astype(np.float64))
        # Rounded, so that rounding does not tell equal odds apart.
        odds = np.log(powers[:, c] / np.delete(powers, c, axis=1).sum(axis=1)).round(9)
        return float(sk.roc_auc_score(truth == c, odds))

    assert value("roc_auc", outputs, truth) == pytest.approx(np.mean([area(int(c)) for c in classes]))


@pytest.mark.parametrize("n_classes", [3, 6])
def test_roc_auc_of_more_classes_agrees_with_torchmetrics_and_scikit_learn(n_classes: int) -> None:
    from torchmetrics.functional.classification import multiclass_auroc

    rng = np.random.default_rng(n_classes)
    outputs, truth = rng.normal(size=(400, n_classes)).astype(np.float32), rng.integers(0, n_classes, 400)
    found = value("roc_auc", outputs, truth)
    theirs = multiclass_auroc(torch.from_numpy(softmax(outputs)), torch.from_numpy(truth), num_classes=n_classes)
    assert found == pytest.approx(theirs.item(), abs=1e-6)
    assert found == pytest.approx(sk.roc_auc_score(truth, softmax(outputs), multi_class="ovr"))


def test_outputs_that_are_sure_to_the_last_bit_still_rank() -> None:
    outputs = np.array([[0, 800], [0, 900], [900, 0]], np.float32)
    assert value("roc_auc", outputs, np.array([0, 1, 0])) == 1.0
    assert value("log_loss", outputs, np.array([1, 0, 0])) == pytest.approx(300)


@given(regressed())
def test_regression_metrics_agree_with_scikit_learn(case: tuple[Outputs, Targets]) -> None:
    outputs, truth = case
    predicted = outputs[:, 0].astype(np.float64)
    assert value("mae", outputs, truth) == pytest.approx(sk.mean_absolute_error(truth, predicted))
    assert value("mse", outputs, truth) == pytest.approx(sk.mean_squared_error(truth, predicted))
    if truth.min() == truth.max():
        assert score("r2", outputs, truth).undefined == f"all targets are {truth[0]:g}"
    elif np.ptp(truth) > 1e-3:
        assert value("r2", outputs, truth) == pytest.approx(sk.r2_score(truth, predicted), rel=1e-6)


def empty(metric: str) -> tuple[Outputs, Labels | Targets]:
    kind = find_metric(metric).kind
    if kind == "multi_label":
        return np.zeros((0, 2), np.float32), np.zeros((0, 2))
    if kind == "ranking":
        return np.zeros((0, 1), np.float32), np.zeros((0, 2))
    if kind is not None and TASKS[kind].label == "class":
        return np.zeros((0, 2), np.float32), np.zeros(0, np.int64)
    if kind == "quantiles":
        return np.zeros((0, 2), np.float32), np.zeros(0)
    n_measures = {"reconstruction": 2, "contrastive": 4, "tokens": 3, "tags": 6}
    return np.zeros((0, n_measures.get(str(kind), 1)), np.float32), np.zeros(0)


#: Every metric, with the parameters that it needs.
NAMES = [{"pinball": "pinball_q10_q90"}.get(name, name) for name in METRICS]


@pytest.mark.parametrize("metric", NAMES)
def test_nothing_to_judge_is_undefined_with_the_reason(metric: str) -> None:
    assert score(metric, *empty(metric)) == Score(None, 0, "no labelled samples")


@pytest.mark.parametrize("metric", NAMES)
def test_too_few_samples_are_undefined_with_their_number(metric: str) -> None:
    outputs, truth = empty(metric)
    numbers = (np.arange(3) % 2).astype(truth.dtype)
    three = np.ones((3, outputs.shape[1]), np.float32), np.stack([numbers] * 2, axis=1) if truth.ndim > 1 else numbers
    assert score(metric, *three, min_samples=4) == Score(None, 3, "3 labelled samples, at least 4 are needed")
    assert score(metric, *three, min_samples=3).undefined is None


@pytest.mark.parametrize("metric", [name for name, entry in METRICS.items() if entry.kind == "class"])
def test_unlabelled_samples_are_left_out_and_counted(metric: str) -> None:
    rng = np.random.default_rng(0)
    outputs, truth = rng.normal(size=(20, 2)).astype(np.float32), rng.integers(0, 2, 20)
    holes = np.arange(20) % 3 == 0
    partly = np.where(holes, -1, truth)
    found, expected = score(metric, outputs, partly), score(metric, outputs[~holes], truth[~holes])
    assert (found.value, found.n, found.n_unlabelled) == (expected.value, 13, 7)
    assert expected.n_unlabelled == 0


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_outputs_that_are_not_finite_are_undefined_never_nan(metric: str, bad: float) -> None:
    outputs, truth = empty(metric)
    two = np.array([[bad] * outputs.shape[1], [0.0] * outputs.shape[1]], np.float32)
    found = score(metric, two, np.arange(2).astype(truth.dtype))
    assert found == Score(None, 2, "the model's outputs are not finite for 1 of 2 samples")


@pytest.mark.parametrize("metric", ["log_loss", "roc_auc"])
def test_a_class_the_model_does_not_know_is_undefined_where_it_has_no_probability(metric: str) -> None:
    found = score(metric, np.zeros((2, 2), np.float32), np.array([0, 2]))
    assert found.undefined == "a sample is of class 2, the model knows 2 classes"


def test_a_class_the_model_does_not_know_is_a_mistake_where_only_the_decision_counts() -> None:
    outputs, truth = np.array([[1, 0], [1, 0], [0, 1]], np.float32), np.array([0, 2, 1])
    assert value("accuracy", outputs, truth) == pytest.approx(2 / 3)
    assert value("f1", outputs, truth) == pytest.approx(sk.f1_score(truth, [0, 0, 1], average="macro"))


def test_a_value_beyond_the_range_of_numbers_is_undefined() -> None:
    found = score("mse", np.zeros((2, 1), np.float32), np.array([1e200, 0.0]))
    assert found == Score(None, 2, "its value is beyond the range of numbers")


def test_a_metric_for_another_task_is_refused_naming_those_that_fit() -> None:
    check_metrics(["accuracy", "roc_auc"], "class", source="pipeline p")
    with pytest.raises(ConfigError, match=r"pipeline p: evaluation.metrics: the dataset's label is a target: use mae, mse, r2"):
        check_metrics(["mae", "f1"], "target", source="pipeline p")
