"""The benchmark of judging: both ways it compares find the same numbers, and it says what it cannot do."""

from pathlib import Path

import pytest

from benchmarks.evaluation import main
from benchmarks.figures.judging import METRICS, World, sliding_figures
from benchmarks.measure import Machine
from benchmarks.policy_streams import demo


def test_the_matrix_agrees_with_running_each_model_on_each_interval_separately(tmp_path: Path) -> None:
    world = World(demo(tmp_path).first(0.15), tmp_path, 2)
    world.intervals = world.intervals[::7]
    for row, expected_row in zip(world.judge(range(2)), world.judge_by_cell(range(2)), strict=True):
        assert len(row) == len(world.intervals) > 2
        for cell, expected in zip(row, expected_row, strict=True):
            assert [cell[metric].value for metric in METRICS] == pytest.approx(expected, abs=1e-5)


@pytest.mark.long
def test_sliding_intervals_are_measured_as_seconds_at_most() -> None:
    [figure] = sliding_figures(Machine(), 2000, 5)
    assert (figure.id, figure.unit, figure.goal, figure.at_most) == ("sliding", "s", 5.0, True)
    assert "2,000 predictions x 5 metrics x 5 intervals" in figure.what


def test_a_figure_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["evaluation.py", "--only", "speed"])
    with pytest.raises(SystemExit) as refused:
        main()
    assert refused.value.code == 2
    assert "there are matrix, sliding, report" in capsys.readouterr().err
