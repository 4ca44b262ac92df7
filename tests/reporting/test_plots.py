"""Plots show what they were given, say what is on their axes, and are files and Markdown of a bearable size."""

import base64
import io
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from PIL import Image

from modyn_dagster.errors import WriteFailed
from modyn_dagster.evaluation.paired.comparison import PairedResult, PairedTest
from modyn_dagster.evaluation.paired.verdict import Bounds, judged, undecided
from modyn_dagster.reporting.comparison import Comparison, compare_runs
from modyn_dagster.reporting.paired_comparison import ModelComparison
from modyn_dagster.reporting.plots import runs
from modyn_dagster.reporting.plots.figures import MAX_MARKDOWN, as_markdown, save
from modyn_dagster.reporting.plots.late_scores import known_and_final
from modyn_dagster.reporting.plots.paired_bounds import paired_bounds
from modyn_dagster.reporting.scores import NO_ACTIVE_MODEL, IntervalScore, LateScore
from modyn_dagster.reporting.summary import RunSummary, TrainedModel, TriggerCounts
from tests.reporting.story import year


def a_score(n: int, value: float | None) -> IntervalScore:
    return IntervalScore(year(5 * n), year(5 * n + 5), value, None if value is not None else NO_ACTIVE_MODEL, 100, 0, False)


def a_summary(pipeline: str, values: list[float | None], n_models: int = 2) -> RunSummary:
    active = tuple(a_score(n, value) for n, value in enumerate(values))
    models = tuple(TrainedModel(n, year(10 * n + 9), 100) for n in range(n_models))
    seconds = {"select": 0.25, "train": 2.0 * n_models, "save": 0.1, "evaluate": 0.5}
    counts = TriggerCounts(n_models, 0, 0, 0)
    return RunSummary(pipeline, 1, "replay", "", 0, "active", counts, 100 * n_models, seconds, "accuracy", models, active, active)


def a_comparison() -> Comparison:
    falling: list[float | None] = [None] * 4 + list(np.linspace(0.9, 0.45, 21))
    staying: list[float | None] = [None] * 2 + [0.97 + 0.02 * (n % 2) for n in range(23)]
    runs = [a_summary("trained_once", falling, 1), a_summary("every_10_seasons", staying, 12), a_summary("often", staying, 20)]
    return compare_runs(runs)


EPOCH = {"n_samples": 100, "seconds": {"data": 1.0, "forward": 2.0, "backward": 4.0}}
FIGURES: dict[str, Callable[[], Figure]] = {
    "loss": lambda: runs.loss_curve([(step, 1 / step) for step in range(1, 1001)], [0.5, 0.25]),
    "epochs": lambda: runs.epoch_stages([EPOCH, EPOCH]),
    "labels": lambda: runs.label_histogram({"other": 46_000, "pitcher": 12_000}),
    "many labels": lambda: runs.label_histogram({f"class {n}": n for n in range(300)}),
    "one run": lambda: runs.score_over_time(a_summary("p", [None, 0.5, 0.6, None, 0.7])),
    "a run without scores": lambda: runs.score_over_time(a_summary("p", [], 0)),
    "comparison": lambda: runs.comparison_over_time(a_comparison()),
    "nothing compared": lambda: runs.comparison_over_time(compare_runs([])),
    "as known and final": lambda: known_and_final(a_comparison().runs),
    "nothing known": lambda: known_and_final([]),
    "costs": lambda: runs.costs(a_comparison()),
    "no costs": lambda: runs.costs(compare_runs([])),
}


@pytest.fixture(params=FIGURES, ids=str)
def figure(request: pytest.FixtureRequest) -> Figure:
    return FIGURES[request.param]()


def test_every_plot_has_a_title_and_named_axes(figure: Figure) -> None:
    for axes in figure.axes:
        assert axes.get_title(loc="left")
        assert axes.get_xlabel()
    assert figure.axes[0].get_ylabel() or figure.axes[0].get_yticklabels() is not None


@pytest.mark.long
def test_every_plot_is_an_image_1280_pixels_wide(figure: Figure, tmp_path: Path) -> None:
    save(figure, tmp_path / "new" / "plot.png")
    with Image.open(tmp_path / "new" / "plot.png") as image:
        assert image.width == 1280
        assert len(set(image.convert("L").getdata())) > 2


@pytest.mark.long
def test_every_plot_fits_into_metadata_as_markdown(figure: Figure) -> None:
    text = as_markdown(figure)
    found = re.fullmatch(r"!\[[^\[\]]+\]\(data:image/png;base64,([A-Za-z0-9+/=]+)\)", text)
    assert found is not None
    assert len(text) <= MAX_MARKDOWN
    with Image.open(io.BytesIO(base64.b64decode(found[1]))) as image:
        assert image.width >= 500


def test_equal_plots_are_equal_files(tmp_path: Path) -> None:
    for name in ("one.png", "other.png"):
        save(runs.costs(a_comparison()), tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "other.png").read_bytes()


def test_a_plot_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "plot.png").mkdir()
    with pytest.raises(WriteFailed, match=r"plot\.png"):
        save(runs.costs(a_comparison()), tmp_path / "plot.png")
    assert [path.name for path in tmp_path.iterdir()] == ["plot.png"]


def lines_of(figure: Figure) -> dict[str, tuple[list[Any], list[float]]]:
    """Labelled lines: what their points were plotted from."""
    lines: list[Any] = [line for line in figure.axes[0].get_lines() if not str(line.get_label()).startswith("_")]
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in lines}


def test_the_loss_curve_has_its_points_and_the_epochs_at_their_ends() -> None:
    lines = lines_of(runs.loss_curve([(2, 0.9), (4, 0.5)], [0.8, 0.4]))
    assert lines["mean since the last point"] == ([2, 4], [0.9, 0.5])
    assert lines["mean of the epoch"] == ([2.0, 4.0], [0.8, 0.4])


def test_stages_of_an_epoch_lie_on_top_of_each_other() -> None:
    shorter = {"n_samples": 50, "seconds": {"data": 0.5, "select": 1.0}}
    axes = runs.epoch_stages([EPOCH, shorter]).axes[0]
    bars = [(bar.get_x() + bar.get_width() / 2, bar.get_y(), bar.get_height()) for bar in axes.patches]  # type: ignore[attr-defined]  # patches of bars are rectangles
    assert bars == [(1, 0, 1), (2, 0, 0.5), (1, 1, 2), (2, 0.5, 0), (1, 3, 4), (2, 0.5, 0), (1, 7, 0), (2, 0.5, 1)]


def test_bars_are_as_high_as_the_counts() -> None:
    axes = runs.label_histogram({"a": 3, "b": 1000}).axes[0]
    assert [bar.get_height() for bar in axes.patches] == [3, 1000]  # type: ignore[attr-defined]  # patches of bars are rectangles
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b"]


def test_many_names_are_thinned_until_they_can_be_read() -> None:
    labels = runs.label_histogram({f"class {n}": 1 for n in range(300)}).axes[0].get_xticklabels()
    assert [label.get_text() for label in labels][:2] == ["class 0", "class 10"]
    assert len(labels) == 30


def test_a_run_shows_both_composite_models_and_its_triggers() -> None:
    figure = runs.score_over_time(a_summary("p", [None, 0.5, 0.6], n_models=3))
    lines = lines_of(figure)
    middle = [moment.replace(tzinfo=None) for moment in (year(2.5), year(7.5), year(12.5))]
    assert lines["currently active"][0] == middle
    np.testing.assert_array_equal(lines["currently active"][1], [np.nan, 0.5, 0.6])
    dashed = next(line for line in figure.axes[0].get_lines() if line.get_label() == "currently trained")
    assert dashed.get_linestyle() == "--"
    vertical = [line for line in figure.axes[0].get_lines() if line.get_linestyle() == ":"]
    assert [moment_of(line) for line in vertical] == [year(9), year(19), year(29)]


def moment_of(line: Any) -> datetime:
    moment: datetime = line.get_xdata()[0]
    return moment.replace(tzinfo=year(0).tzinfo)


def test_a_comparison_has_a_line_per_run_with_its_mean_and_shows_what_the_means_are_over() -> None:
    comparison = a_comparison()
    figure = runs.comparison_over_time(comparison)
    legend = figure.axes[0].get_legend()
    assert legend is not None
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts[0] == "trained_once (mean 0.675)"
    assert texts[-1] == "first to last of the 21 intervals that the means are over"
    assert len(texts) == 4


def test_costs_are_stacked_by_stage() -> None:
    seconds, samples = runs.costs(a_comparison()).axes
    ends = {bar.get_x() + bar.get_width() for bar in seconds.patches}  # type: ignore[attr-defined]  # patches of bars are rectangles
    assert {2.85, 24.85, 40.85} <= {round(end, 2) for end in ends}
    assert [bar.get_width() for bar in samples.patches] == [100, 1200, 2000]  # type: ignore[attr-defined]  # patches of bars are rectangles


def test_the_scores_of_a_run_whose_labels_arrive_later_have_a_line_with_the_labels_so_far() -> None:
    plain = a_summary("p", [None, 0.5, 0.6])
    late = tuple(replace(score, late=LateScore(0.5, score.value and score.value + 0.1, 1.0)) for score in plain.active)
    [axes] = runs.score_over_time(replace(plain, active=late)).axes
    [line] = [line for line in axes.lines if line.get_label() == "currently active, with the labels so far"]
    np.testing.assert_allclose(np.asarray(line.get_ydata(), float), [np.nan, 0.6, 0.7])
    [axes] = runs.score_over_time(plain).axes
    assert "currently active, with the labels so far" not in [line.get_label() for line in axes.lines]


def test_a_test_without_bounds_along_the_stream_is_drawn_as_its_interval_and_an_open_one_as_its_reason() -> None:
    test = PairedTest("roc_auc", "block_bootstrap", 0.01)
    verdict = judged(900, 0.03, Bounds(0.004, 0.058, 0.001, 0.061), margin=0.01, confidence=0.95)
    figure = paired_bounds(ModelComparison("p 1", "p 0", test, PairedResult(verdict, None), (0.9, 0.87)))
    axes = figure.axes[0]
    [interval], legend = axes.collections, axes.get_legend()
    assert isinstance(interval, LineCollection)
    np.testing.assert_allclose(interval.get_segments()[0], [[900, 0.001], [900, 0.061]])
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["margin 0.01", "95% interval"]
    few = undecided("3 samples, at least 10 are needed", 3, margin=0, confidence=0.95)
    open_ = paired_bounds(ModelComparison("p 1", "p 0", test, PairedResult(few, None), (None, None)))
    assert [text.get_text() for text in open_.axes[0].texts] == ["3 samples, at least 10 are needed"]
