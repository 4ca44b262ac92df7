"""Compact predictions: every metric of two classes within a thousandth, classes and order as they were."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from modyn_dagster.evaluation import METRICS, score
from modyn_dagster.evaluation.metrics.evaluation_samples import EvaluationSamples
from modyn_dagster.evaluation.predictions.blocks import BLOCK
from modyn_dagster.evaluation.predictions.codes import EXACT, TOLERANCE, block_sizes, encode
from modyn_dagster.keys import keys_of
from modyn_dagster.values.digest import bytes_digest
from tests.examples import examples

Outputs = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]

_OF_CLASS = ("accuracy", "f1", "roc_auc", "pr_auc", "log_loss", "brier")
_WHOLE = [name for name, entry in METRICS.items() if entry.kind == "class"]
BINARY = [*_WHOLE, "accuracy_top2", *(f"{name}_class_{label}" for name in _OF_CLASS for label in (0, 1))]

#: Limits of the bins of confidence, where the calibration error has steps.
EDGES = np.log(np.arange(8, 15) / np.arange(7, 0, -1)).astype(np.float32)


@st.composite
def logits(draw: st.DrawFn, most: int = 60) -> Outputs:
    """Logits of two classes: of any size, on a grid with many ties, next to each other, or around the limits of bins."""
    n = draw(st.integers(1, most))
    any_size = st.floats(width=32, allow_nan=False, allow_infinity=False)
    grid = st.integers(-8, 8).map(lambda i: np.float32(i / 4))
    tiny = st.integers(-4, 4).map(lambda i: np.float32(i * 1e-7))
    centre = draw(st.sampled_from([0.0, 1.0, -3.0, 40.0, 1e4]))
    near = st.integers(-5, 5).map(lambda i: np.float32(centre + i * np.spacing(np.float32(centre))))
    edge = st.tuples(st.sampled_from(list(EDGES)), st.integers(-3, 3)).map(lambda t: np.float32(t[0] + t[1] * np.spacing(t[0])))
    usual = st.floats(-6, 6, width=32)
    kinds = draw(st.sets(st.sampled_from(["any", "grid", "tiny", "near", "edge", "usual"]), min_size=1))
    strategies = {"any": any_size, "grid": grid, "tiny": tiny, "near": near, "edge": edge, "usual": usual}
    outputs = np.zeros((n, 2), np.float32)
    outputs[:, 1] = draw(hnp.arrays(np.float32, n, elements=st.one_of([strategies[kind] for kind in sorted(kinds)])))
    if draw(st.booleans()):
        outputs[:, 0] = draw(hnp.arrays(np.float32, n, elements=st.one_of(grid, tiny)))
    return outputs


def decoded(outputs: Outputs, size: int = BLOCK) -> Outputs:
    """Outputs after their codes, in blocks of one size."""
    sizes = block_sizes(keys_of(0, np.arange(len(outputs)) * BLOCK // size))
    coded, after = encode(outputs, sizes)
    np.testing.assert_array_equal(coded.outputs(sizes), after)
    return after


def differences(outputs: Outputs) -> npt.NDArray[np.float64]:
    return np.subtract(outputs[:, 1], outputs[:, 0], dtype=np.float64)


def assert_metrics_stay(before: Outputs, after: Outputs, truth: Labels) -> None:
    for metric in BINARY:
        one, other = score(metric, before, truth), score(metric, after, truth)
        assert one.undefined == other.undefined, metric
        if one.value is not None and other.value is not None:
            exact = metric.startswith(("accuracy", "f1"))
            allowed = 0 if exact else 1e-3 * max(1, one.value) if metric.startswith("log_loss") else 1e-3
            assert abs(one.value - other.value) <= allowed, metric


@settings(max_examples=examples(25))
@given(logits(), st.data())
def test_every_metric_of_two_classes_stays_within_a_thousandth_on_any_part_of_the_samples(
    outputs: Outputs, data: st.DataObject
) -> None:
    truth = data.draw(hnp.arrays(np.int64, len(outputs), elements=st.integers(0, 1)))
    part = data.draw(hnp.arrays(np.bool_, len(outputs)))
    after = decoded(outputs)
    assert_metrics_stay(outputs, after, truth)
    if part.any():
        assert_metrics_stay(outputs[part], after[part], truth[part])


def assert_all_is_kept(outputs: Outputs) -> None:
    """Signs, bins of confidence, order, ties, and the differences themselves up to the tolerance."""
    bins = [EvaluationSamples(each, np.zeros(len(each), np.int64)).confidence_bins for each in (outputs, decoded(outputs))]
    np.testing.assert_array_equal(bins[0], bins[1])
    before, after = differences(outputs), differences(decoded(outputs))
    np.testing.assert_array_equal(np.sign(before), np.sign(after))
    assert (np.abs(before - after) <= (TOLERANCE + 1e-6) * np.maximum(1, np.abs(before))).all()
    pairs = np.sign(before[:, None] - before), np.sign(after[:, None] - after)
    np.testing.assert_array_equal(*pairs)


@settings(max_examples=examples(25))
@given(logits())
def test_signs_bins_order_and_ties_of_a_block_stay_and_no_difference_moves_far(outputs: Outputs) -> None:
    assert_all_is_kept(outputs)


@pytest.mark.parametrize("centre", [*EDGES.tolist(), 0.1, 1.0, 7.0, 300.0, 1e6])
@pytest.mark.parametrize("width", [1e-9, 1e-7, 1e-4, 0.01])
def test_what_crowds_around_one_value_stays_apart_whatever_float32_tells_apart(centre: float, width: float) -> None:
    outputs = np.zeros((200, 2), np.float32)
    outputs[:, 1], outputs[:, 0] = centre, np.linspace(-width, width, 200)
    assert_all_is_kept(outputs)


@pytest.mark.parametrize(
    ("scale", "size"), [(1e-20, 1024), (1e-3, 256), (1.0, 512), (1.0, 32), (4.0, 1024), (1e3, 512), (1e30, 512)]
)
def test_order_stays_in_each_block_and_ranks_of_many_blocks_hardly_change(scale: float, size: int) -> None:
    rng = np.random.default_rng(7)
    outputs = np.zeros((20_077, 2), np.float32)
    outputs[:, 1] = rng.normal(size=len(outputs)) * scale
    truth = (rng.normal(size=len(outputs)) + outputs[:, 1] / np.float32(scale) > 1).astype(np.int64)
    after = decoded(outputs, size)
    for start in range(0, len(outputs), size):
        one, other = (differences(each[start : start + size]) for each in (outputs, after))
        order = np.argsort(one, kind="stable")
        np.testing.assert_array_equal(np.sign(np.diff(one[order])), np.sign(np.diff(other[order])))
    for part in (slice(None), slice(500, 5_500)):
        assert_metrics_stay(outputs[part], after[part], truth[part])


def test_outputs_that_are_not_finite_or_too_close_are_kept_as_they_are() -> None:
    outputs = np.zeros((900, 2), np.float32)
    outputs[:, 1] = 100 + np.arange(900) * np.spacing(np.float32(100))
    outputs[7], outputs[500] = (np.nan, 3), (1, -np.inf)
    outputs[600:, 1] = np.linspace(-400, 400, 300)
    coded, _ = encode(outputs, np.array([900]))
    kept = coded.codes == EXACT
    assert kept[[7, 500]].all()
    assert kept[:600].mean() > 0.9
    np.testing.assert_array_equal(coded.outputs(np.array([900]))[kept], outputs[kept])


def test_no_samples_have_no_codes() -> None:
    assert decoded(np.empty((0, 2), np.float32)).shape == (0, 2)


def test_codes_are_those_of_the_first_version() -> None:
    """Another digest is another format: files of before would be read as other predictions."""
    rng = np.random.default_rng(1)
    outputs = (rng.integers(-(2**20), 2**20, (3_000, 2)) / 2**18).astype(np.float32)
    coded, _ = encode(outputs, np.array([1_000, 1_024, 976]))
    assert (
        bytes_digest(coded.widths.tobytes() + coded.bases.tobytes() + coded.codes.astype("<u2").tobytes(), 8)
        == "ae5909656d95b4fb"
    )
