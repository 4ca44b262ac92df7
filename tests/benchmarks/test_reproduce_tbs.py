"""The experiments of the time-biased sampling paper: its regression comes out, and figures have their fields."""

import json

import numpy as np
import pytest

from benchmarks.report import write_json
from benchmarks.reproduce_tbs import figures
from benchmarks.tbs_experiments import experiments
from benchmarks.tbs_learners import expected_shortfall, naive_bayes, nearest_neighbours
from benchmarks.tbs_streams import Array, Pattern

EXPERIMENTS = {experiment.id: experiment for experiment in experiments(None)}


@pytest.mark.soak("benchmarks")
@pytest.mark.long
def test_the_regression_of_figure_12_is_within_2_percent_and_its_shortfall_within_5(tmp_path):
    experiment = EXPERIMENTS["fig12.saturated"]
    found = experiment.run(10)
    for sampler, (error, shortfall) in experiment.paper.items():
        ours = experiment.summary(found[sampler])
        assert ours[0] == pytest.approx(error, rel=0.02)
        assert ours[1] == pytest.approx(shortfall, rel=0.05)
    assert experiment.summary(found["reference"]) == pytest.approx(experiment.summary(found["R-TBS 0.07"]), rel=0.05)
    write_json(tmp_path / "out.json", figures([(experiment, found)]))
    listed = json.loads((tmp_path / "out.json").read_text())
    assert listed["fig12.saturated.SW.es"]["goal"] == 10.94
    assert all(set(figure) == {"value", "unit", "min", "max", "goal"} for figure in listed.values())


def test_modes_change_when_the_paper_says():
    times = np.arange(-3, 45)
    periodic, single = Pattern(10, 10), Pattern(10, 10, single=True)
    assert times[periodic.is_abnormal(times)].tolist() == [*range(10, 20), *range(30, 40)]
    assert times[single.is_abnormal(times)].tolist() == [*range(10, 20)]


def test_classifiers_tell_apart_what_is_apart():
    x = np.array([[0.0, 0.0]] * 9 + [[9.0, 9.0]] * 9)
    y: Array = np.repeat(np.array([0.0, 1.0]), 9)
    assert nearest_neighbours(x, y, x, y) == 0.0
    assert nearest_neighbours(x, y, x, 1.0 - y) == 100.0
    words = (x > 0).astype(float)
    assert naive_bayes(words, y, words, y) == 0.0
    assert naive_bayes(words[:0], y[:0], words, y) == 50.0


def test_a_shortfall_is_the_mean_of_the_worst():
    assert expected_shortfall(np.array([1.0, np.nan, *range(19)]), 0.1) == 17.5
