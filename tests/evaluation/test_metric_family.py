"""The metrics beyond the basic ones against scikit-learn and torchmetrics, per class and per slice, and what may go wrong."""

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import sklearn.metrics as sk
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from modyn_dagster.errors import ConfigError, ImportPathError
from modyn_dagster.evaluation import (
    METRICS,
    Interval,
    Predictions,
    Score,
    check_metrics,
    generate_intervals,
    score,
    score_intervals,
    score_slices,
)
from modyn_dagster.keys import keys_of
from modyn_dagster.spec.evaluation import EvaluationSpec
from modyn_dagster.spec.load import parse_spec
from tests.examples import examples

Outputs = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
Case = tuple[Outputs, Labels]

LOGITS = st.integers(-12, 12).map(lambda i: np.float32(i / 4))
CLASSES = [name for name, entry in METRICS.items() if entry.kind == "class"]


@st.composite
def classified(draw: st.DrawFn, low: int = 2, high: int = 5) -> Case:
    n, k = draw(st.integers(1, 40)), draw(st.integers(low, high))
    return draw(hnp.arrays(np.float32, (n, k), elements=LOGITS)), draw(hnp.arrays(np.int64, n, elements=st.integers(0, k - 1)))


def softmax(outputs: Outputs) -> npt.NDArray[np.float64]:
    powers = np.exp(outputs.astype(np.float64))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


@settings(max_examples=examples(40))
@given(classified(), st.integers(1, 6))
def test_top_k_accuracy_counts_classes_among_the_k_largest_outputs(case: Case, k: int) -> None:
    outputs, truth = case
    order = np.argsort(-outputs, axis=1, kind="stable")[:, :k]
    assert score(f"accuracy_top{k}", outputs, truth).value == pytest.approx((order == truth[:, None]).any(axis=1).mean())
    if len(np.unique(outputs)) == outputs.size and k < outputs.shape[1] > 2:
        expected = sk.top_k_accuracy_score(truth, outputs, k=k, labels=np.arange(outputs.shape[1]))
        assert score(f"accuracy_top{k}", outputs, truth).value == pytest.approx(expected)


@settings(max_examples=examples(40))
@given(classified(), st.sampled_from(["macro", "micro", "weighted"]))
def test_all_averages_of_f1_agree_with_scikit_learn(case: Case, average: str) -> None:
    outputs, truth = case
    expected = sk.f1_score(truth, outputs.argmax(1), average=average)
    assert score(f"f1_{average}", outputs, truth).value == pytest.approx(expected)


@settings(max_examples=examples(40))
@given(classified(), st.integers(0, 4))
def test_f1_of_a_class_agrees_with_scikit_learn(case: Case, positive: int) -> None:
    outputs, truth = case
    predicted = outputs.argmax(1)
    found = score(f"f1_class_{positive}", outputs, truth)
    if positive in truth or positive in predicted:
        assert found.value == pytest.approx(sk.f1_score(truth == positive, predicted == positive))
    else:
        assert found.undefined == f"neither a sample nor a prediction of class {positive}"


@settings(max_examples=examples(40))
@given(classified(2, 2))
def test_average_precision_of_two_classes_agrees_with_scikit_learn(case: Case) -> None:
    outputs, truth = case
    found = score("pr_auc", outputs, truth)
    if len(np.unique(truth)) == 1:
        assert found.undefined == f"all samples are of class {truth[0]}"
    else:
        assert found.value == pytest.approx(sk.average_precision_score(truth, outputs[:, 1] - outputs[:, 0]))


@settings(max_examples=examples(40))
@given(classified(3, 5))
def test_areas_of_single_classes_agree_with_scikit_learn_and_their_mean_is_the_whole(case: Case) -> None:
    outputs, truth = case
    classes = np.unique(truth)
    for name, oracle in (("pr_auc", sk.average_precision_score), ("roc_auc", sk.roc_auc_score)):
        whole = score(name, outputs, truth)
        if len(classes) == 1:
            assert whole.undefined == f"all samples are of class {classes[0]}"
            continue
        each = {int(c): score(f"{name}_class_{c}", outputs, truth).value for c in classes}
        for c, value in each.items():
            odds = np.log(softmax(outputs)[:, c] / np.delete(softmax(outputs), c, axis=1).sum(axis=1)).round(9)
            assert value == pytest.approx(oracle(truth == c, odds))
        assert whole.value == pytest.approx(np.mean([value for value in each.values() if value is not None]))


@settings(max_examples=examples(40))
@given(classified())
def test_brier_score_agrees_with_scikit_learn(case: Case) -> None:
    outputs, truth = case
    shares, labels = softmax(outputs), np.arange(outputs.shape[1])
    with warnings.catch_warnings(action="ignore"):
        expected = sk.brier_score_loss(truth, shares[:, 1] if len(labels) == 2 else shares, labels=labels)
    assert score("brier", outputs, truth).value == pytest.approx(expected)


@settings(max_examples=examples(40))
@given(classified(2, 4))
def test_calibration_error_agrees_with_its_definition(case: Case) -> None:
    outputs, truth = case
    confidence, right = softmax(outputs).max(axis=1), outputs.argmax(1) == truth
    bins = np.minimum(np.floor(confidence * 15), 14)
    expected = sum(np.mean(bins == b) * abs(confidence[bins == b].mean() - right[bins == b].mean()) for b in np.unique(bins))
    assert score("calibration_error", outputs, truth).value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("k", [2, 5])
def test_calibration_error_agrees_with_torchmetrics(k: int) -> None:
    from torchmetrics.functional.classification import multiclass_calibration_error

    rng = np.random.default_rng(k)
    outputs, truth = rng.normal(size=(500, k)).astype(np.float32) * 2, rng.integers(0, k, 500)
    theirs = multiclass_calibration_error(torch.from_numpy(softmax(outputs)), torch.from_numpy(truth), num_classes=k, n_bins=15)
    assert score("calibration_error", outputs, truth).value == pytest.approx(theirs.item(), abs=1e-6)


@settings(max_examples=examples(40))
@given(classified(2, 4), st.integers(0, 3), st.sampled_from(["accuracy", "accuracy_top2", "log_loss", "brier"]))
def test_a_mean_of_one_class_is_that_of_its_samples_alone(case: Case, positive: int, metric: str) -> None:
    outputs, truth = case
    own = truth == positive
    found = score(f"{metric}_class_{positive}", outputs, truth)
    if own.any():
        assert found.value == pytest.approx(score(metric, outputs[own], truth[own]).value)
    else:
        assert found.undefined == f"no sample is of class {positive}"


def predictions_of(outputs: Outputs, truth: Labels, seconds: npt.NDArray[np.int64]) -> Predictions:
    times = seconds.astype("datetime64[s]").astype("datetime64[us]")
    return Predictions("class", keys_of(0, np.arange(len(truth))), times, truth, outputs, np.zeros(len(truth), np.float32))


def at(seconds: int) -> np.datetime64:
    return np.datetime64(seconds * 1_000_000, "us")


@settings(max_examples=examples(30))
@given(classified(2, 4), st.integers(2, 9), st.integers(2, 20), st.randoms())
def test_every_metric_of_overlapping_intervals_is_that_of_each_interval_alone(
    case: Case, every: int, length: int, random: Any
) -> None:
    """To the last bit: a cell must not depend on which others were asked for with it."""
    outputs, truth = case
    truth = np.where(np.arange(len(truth)) % 7 == 6, -1, truth)
    seconds = np.sort(np.array([random.randrange(40) for _ in truth], dtype=np.int64))
    intervals = generate_intervals({"kind": "sliding", "every": every, "length": length}, at(0), at(40))
    predictions = predictions_of(outputs, truth, seconds)
    for interval, cell in zip(intervals, score_intervals(predictions, intervals, CLASSES), strict=True):
        inside = (predictions.times >= interval.start) & (predictions.times < interval.end)
        assert cell == {name: score(name, outputs[inside], truth[inside]) for name in CLASSES}


def test_slices_are_judged_apart_by_any_attribute_or_the_label() -> None:
    rng = np.random.default_rng(3)
    outputs, truth, seconds = (
        rng.normal(size=(60, 3)).astype(np.float32),
        rng.integers(0, 3, 60),
        np.sort(rng.integers(0, 20, 60)),
    )
    predictions, intervals = predictions_of(outputs, truth, seconds), generate_intervals({"every": "10s"}, at(0), at(20))
    country = np.array(["DE", "FR", "IT"])[rng.integers(0, 3, 60)]
    found = score_slices(predictions, country, intervals, ["accuracy", "brier"])
    assert list(found) == ["DE", "FR", "IT"]
    for name, cells in found.items():
        own = country == name
        assert cells[0]["brier"] == score("brier", outputs[own & (seconds < 10)], truth[own & (seconds < 10)])
    by_class = score_slices(predictions, truth, intervals, ["accuracy"])
    whole = score_intervals(predictions, intervals, ["accuracy_class_2"])
    assert [c["accuracy"].value for c in by_class[2]] == [c["accuracy_class_2"].value for c in whole]
    with pytest.raises(ValueError, match="groups: 3 values for 60 predictions"):
        score_slices(predictions, truth[:3], intervals, ["accuracy"])


def moody(outputs: Outputs, truth: Labels) -> float:
    """A metric of the project: raises on a short interval."""
    if len(truth) < 3:
        raise RuntimeError("too short for me")
    return float(outputs[:, 0].sum() + truth.sum())


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of ``moody``: with importlib's import mode a test module is not importable by name."""
    import sys
    import types

    module = types.ModuleType("moody_metrics")
    module.__dict__["moody"] = moody
    monkeypatch.setitem(sys.modules, "moody_metrics", module)
    return "moody_metrics:moody"


def test_a_metric_of_ones_own_is_named_by_its_import_path(importable: str) -> None:
    outputs, truth = np.ones((4, 2), np.float32), np.array([0, 1, 1, -1])
    assert score(importable, outputs, truth) == Score(5.0, 3, None, 1)
    spec = parse_spec({"intervals": {"every": "1d"}, "metrics": [importable, "accuracy_top3"]}, EvaluationSpec, source="t")
    assert spec.score_metric == importable
    check_metrics(spec.metrics, "class", source="pipeline p")


def test_a_metric_that_throws_marks_its_cell_alone_as_failed(importable: str) -> None:
    outputs, truth, seconds = np.ones((6, 2), np.float32), np.array([0, 1, 1, 0, 1, 1]), np.array([0, 1, 2, 3, 14, 15])
    intervals = generate_intervals({"every": "10s"}, at(0), at(20))
    first, second = score_intervals(predictions_of(outputs, truth, seconds), intervals, ["accuracy", importable])
    assert first[importable].value == 6.0
    assert second[importable] == Score(None, 2, "RuntimeError: too short for me", 0, failed=True)
    assert second[importable].reason == "failed: RuntimeError: too short for me"
    assert [first["accuracy"].value, second["accuracy"].value] == [0.5, 0.0]


def test_a_label_outside_the_classes_fails_its_cell_and_no_other() -> None:
    outputs, truth, seconds = np.ones((4, 2), np.float32), np.array([0, 1, 5, 1]), np.array([0, 1, 12, 13])
    intervals = generate_intervals({"every": "10s"}, at(0), at(20))
    first, second = score_intervals(predictions_of(outputs, truth, seconds), intervals, ["brier", "roc_auc", "accuracy"])
    assert all(cell.value is not None for cell in first.values())
    assert second["brier"].reason == second["roc_auc"].reason == "failed: a sample is of class 5, the model knows 2 classes"
    assert second["accuracy"].value == 0.0


@pytest.mark.parametrize("metric", ["mse", "mae", "r2"])
@pytest.mark.parametrize(("bad", "reason"), [(np.inf, "a target is infinite"), (np.nan, "a target is NaN")])
def test_a_target_that_is_no_number_fails_its_cell_and_no_other(metric: str, bad: float, reason: str) -> None:
    outputs, truth = np.zeros((4, 1), np.float32), np.array([1.0, bad, 2.0, 3.0])
    assert score(metric, outputs, truth) == Score(None, 4, reason, failed=True)
    times = np.arange(4).astype("datetime64[us]")
    stream = Predictions("target", np.arange(4, dtype=np.uint64), times, truth, outputs, np.zeros(4, np.float32))
    begin, middle, end = (np.datetime64(edge, "us") for edge in (0, 2, 4))
    halves = [Interval(begin, middle, begin), Interval(middle, end, middle)]
    first, second = (cell[metric] for cell in score_intervals(stream, halves, [metric]))
    assert first.reason == f"failed: {reason}"
    assert second == score(metric, outputs[2:], truth[2:])
    assert second.value is not None


@pytest.mark.parametrize(
    "name", ["acuracy", "accuracy_top0", "f1_macro_class_1", "f1_class_01", "mae_class_1", "no.such:thing", "x:"]
)
def test_a_name_there_is_not_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"metrics\.0"):
        parse_spec({"intervals": {"every": "1d"}, "metrics": [name]}, EvaluationSpec, source="t")


def test_a_path_that_cannot_be_imported_is_found_out_before_a_run() -> None:
    with pytest.raises(ImportPathError, match=r"pipeline p: evaluation.metrics: .*no_such_function"):
        check_metrics(["json:no_such_function"], "class", source="pipeline p")
