import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import modyn_dagster.evaluation as evaluation
from modyn_dagster.evaluation import Interval, Predictions, Score, generate_intervals, score, score_intervals
from modyn_dagster.keys import keys_of


def predictions_at(seconds: list[int]) -> Predictions:
    n = len(seconds)
    rng = np.random.default_rng(n)
    times = np.array(seconds, dtype="datetime64[s]").astype("datetime64[us]")
    outputs = rng.normal(size=(n, 2)).astype(np.float32)
    return Predictions("class", keys_of(0, np.arange(n)), times, rng.integers(0, 2, n), outputs, np.zeros(n, np.float32))


def day(seconds: int) -> np.datetime64:
    return np.datetime64(seconds * 1_000_000, "us")


@given(st.lists(st.integers(0, 99), max_size=60), st.integers(3, 40), st.integers(1, 4))
def test_every_cell_is_the_metric_of_the_samples_of_its_interval(seconds: list[int], every: int, min_samples: int) -> None:
    predictions = predictions_at(seconds)
    intervals = generate_intervals({"every": f"{every}s"}, day(0), day(100))
    metrics = ["accuracy", "log_loss", "roc_auc"]
    cells = score_intervals(predictions, intervals, metrics, min_samples=min_samples)
    assert len(cells) == len(intervals)
    for interval, cell in zip(intervals, cells, strict=True):
        inside = (predictions.times >= interval.start) & (predictions.times < interval.end)
        for metric in metrics:
            expected = score(metric, predictions.outputs[inside], predictions.truth[inside], min_samples=min_samples)
            assert cell[metric].n == expected.n
            assert cell[metric].undefined == expected.undefined
            assert cell[metric].value == pytest.approx(expected.value)


def test_late_samples_count_in_the_interval_of_their_time() -> None:
    predictions = predictions_at([5, 15, 6])
    cells = score_intervals(predictions, generate_intervals({"every": "10s"}, day(0), day(20)), ["accuracy"])
    assert [cell["accuracy"].n for cell in cells] == [2, 1]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.randoms())
def test_the_order_in_which_predictions_were_made_changes_no_bit(seconds: list[int], random: object) -> None:
    predictions = predictions_at(seconds)
    shuffled = predictions.take(np.random.default_rng(1).permutation(len(seconds)))
    intervals = generate_intervals({"every": "4s"}, day(0), day(10))
    metrics = ["accuracy", "log_loss", "roc_auc", "f1", "brier", "pr_auc", "calibration_error"]
    assert score_intervals(predictions, intervals, metrics) == score_intervals(shuffled, intervals, metrics)


def test_without_intervals_there_are_no_cells_and_without_samples_undefined_ones() -> None:
    assert score_intervals(predictions_at([1]), [], ["accuracy"]) == []
    cells = score_intervals(predictions_at([]), generate_intervals({"every": "5s"}, day(0), day(5)), ["accuracy"])
    assert cells == [{"accuracy": Score(None, 0, "no labelled samples")}]


@pytest.mark.process
def test_what_is_exported_is_what_all_lists_and_needs_no_torch() -> None:
    for name in evaluation.__all__:
        assert getattr(evaluation, name) is not None
    code = "import sys, modyn_dagster.evaluation; sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


@pytest.mark.long
@pytest.mark.parametrize("classes", [2, 3, 9])
def test_many_intervals_at_once_have_the_bits_of_each_alone(classes: int) -> None:
    """Overlapping, nested, equal, empty and unordered ones, ties, and a class that is no longer known."""
    rng = np.random.default_rng(classes)
    n = 400
    outputs = np.round(rng.normal(size=(n, classes)), 1).astype(np.float32)
    labels = rng.integers(-1, classes, n)
    labels[:5] = classes
    times = np.sort(rng.integers(0, 300, n)).astype("datetime64[us]")
    stream = Predictions("class", np.arange(n, dtype=np.uint64), times, labels, outputs, np.zeros(n, np.float32))
    edges = [(start, start + length) for start in range(0, 290, 7) for length in (0, 1, 30, 90)]
    ends = [(np.datetime64(start, "us"), np.datetime64(end, "us")) for start, end in edges]
    intervals = [Interval(start, end, start) for start, end in ends]
    metrics = ["accuracy", "f1", "roc_auc", "log_loss", "brier"]
    for chosen in (intervals, intervals[2::4], intervals[::-1]):
        together = score_intervals(stream, chosen, metrics, min_samples=3)
        assert together == [score_intervals(stream, [interval], metrics, min_samples=3)[0] for interval in chosen]
        for interval, cell in zip(chosen, together, strict=True):
            inside = (times >= interval.start) & (times < interval.end)
            for metric in metrics:
                assert cell[metric] == score(metric, outputs[inside], labels[inside], min_samples=3)
