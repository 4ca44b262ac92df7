"""Images of the report's plots: what they show is what the data say, and little data make a picture too."""

from typing import Any

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer

from modyn_dagster.evaluation import currently_active, pareto_front
from modyn_dagster.reporting.page.data import ReportData
from modyn_dagster.reporting.page.plots import COSTS, box_figure, matrix_figure, pareto_figure, report_figures, shared_scores
from modyn_dagster.reporting.plots.figures import MAX_MARKDOWN, as_markdown
from tests.reporting.made_up import a_report
from tests.variants import represented


def points(axes: Any) -> dict[str, tuple[list[float], list[float]]]:
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()}


def shared_means(report: ReportData, metric: str) -> list[float]:
    """Read aloud: means over the intervals whose anchors lie after every pipeline's first training."""
    after = report.anchors > max(record.train_ends.min() for record in report.pipelines)
    means = []
    for record in report.pipelines:
        newest = [np.flatnonzero(record.train_ends < anchor).max(initial=-1) for anchor in report.anchors]
        means.append(np.mean([record.matrices[metric][newest[i], i] for i in np.flatnonzero(after)]))
    return means


@pytest.mark.parametrize("metric", ["accuracy", "log_loss"])
@pytest.mark.parametrize("cost", COSTS)
def test_every_pipeline_stands_at_its_cost_and_its_mean_over_the_shared_intervals(cost: str, metric: str) -> None:
    report = a_report([12, 4, 20], 25)
    found = points(pareto_figure(report, metric, cost).axes[0])
    means = shared_means(report, metric)
    costs = [COSTS[cost][1](record) for record in report.pipelines]
    for record, mean, spent in zip(report.pipelines, means, costs, strict=True):
        [x], [y] = found[record.label]
        assert x == spent
        assert y == pytest.approx(mean)
    best = np.flatnonzero(pareto_front(costs, means, lower_is_better=metric == "log_loss"))
    assert sorted(found["Pareto front"][0]) == sorted(costs[i] for i in best)


def test_the_matrix_boxes_the_active_model_of_every_interval() -> None:
    report = a_report([6], 10)
    [record] = report.pipelines
    axes: Any = matrix_figure(report, record, "accuracy").axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), record.matrices["accuracy"])
    boxes = {(box.get_x() + 0.5, box.get_y() + 0.5) for box in axes.patches}
    active = currently_active(record.train_ends, report.anchors)
    assert boxes == {(interval, model) for interval, model in enumerate(active.tolist()) if model >= 0}


def test_boxes_are_over_the_shared_intervals() -> None:
    report = a_report([12, 4], 25)
    assert [np.mean(scores) for scores in shared_scores(report, "accuracy")] == pytest.approx(shared_means(report, "accuracy"))
    axes = box_figure(report, "accuracy").axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["pipeline_00", "pipeline_01"]


@pytest.mark.long
@represented(
    "report",
    {
        "one trigger": a_report([1], 3),
        "no trigger": a_report([0], 3),
        "no interval": a_report([1, 0], 0),
        "no pipeline": a_report([], 0),
        "two of each": a_report([2], 2),
        "many": a_report([30] * 6, 60),
    },
    "screens",
    "no trigger",
    "no interval",
    "no pipeline",
    "two of each",
)
def test_every_picture_has_labels_and_fits_into_metadata(report: ReportData) -> None:
    figures = report_figures(report)
    assert {"pareto", "boxes"} <= figures.keys()
    for figure in figures.values():
        axes = figure.axes[0]
        assert all((axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()))
        assert len(as_markdown(figure)) <= MAX_MARKDOWN


def test_without_a_metric_there_is_nothing_to_draw() -> None:
    assert report_figures(a_report([], 0, metrics=())) == {}


def test_several_seeds_have_a_cross_at_their_means_as_wide_as_their_deviation() -> None:
    report = a_report([3, 5, 4, 4], 10, seeds=2)
    figure = pareto_figure(report, "accuracy", "samples")
    crosses = figure.axes[0].containers
    assert [cross.get_label() for cross in crosses] == [f"pipeline_0{i}: mean of 2 seeds ± deviation" for i in (0, 1)]
    scores = [scores.mean() for scores in shared_scores(report, "accuracy")]
    costs = [float(record.n_samples.sum()) for record in report.pipelines]
    for i, cross in enumerate(crosses):
        assert isinstance(cross, ErrorbarContainer)
        for values, axis in ((costs, 0), (scores, 1)):
            own = values[2 * i : 2 * i + 2]
            [segment] = cross.lines[2][axis].get_segments()
            reach = np.std(own, ddof=1)
            assert segment[:, axis] == pytest.approx([np.mean(own) - reach, np.mean(own) + reach])
    assert pareto_figure(a_report([3, 5], 10), "accuracy").axes[0].containers == []
