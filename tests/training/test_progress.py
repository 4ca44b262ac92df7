import io
import sys

import pytest

from modyn_dagster.assets.dagster_runs import log_training
from modyn_dagster.progress import throttled
from modyn_dagster.training import TrainingProgress, training_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_bar_with_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with training_bar("trained_once 1") as show:
        assert show is not None
        show(TrainingProgress(epoch=2, n_epochs=3, step=9, n_steps=9, loss=0.25))
    assert "trained_once 1" in terminal.getvalue()
    assert "9/9" in terminal.getvalue()
    assert "loss 0.2500" in terminal.getvalue()


def test_without_a_terminal_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with training_bar("trained_once 1") as show:
        assert show is None
    assert capsys.readouterr() == ("", "")


STEPS = [TrainingProgress(1, 1, step, 1000, 0.5) for step in range(1, 1001)]


def test_a_bar_is_drawn_now_and_then_and_at_the_end() -> None:
    told: list[int] = []
    looks = iter(range(10_000))
    tell = throttled(lambda progress: told.append(progress.step), 101, clock=lambda: next(looks))
    for step in STEPS:
        tell(step)
    assert told == [101, 202, 303, 404, 505, 606, 707, 808, 909, 1000]
    assert next(looks) == len(STEPS) + 1, "one look at the clock for every step"


def test_a_log_has_a_line_every_ten_seconds_and_none_of_a_short_training() -> None:
    lines: list[str] = []
    now = 0.0
    tell = log_training(lines.append, clock=lambda: now)
    for step in STEPS:
        now += 0.0099
        tell(step)
    assert lines == []
    for step in STEPS[:30]:
        now += 1
        tell(step)
    assert lines == [f"epoch 1 of 1, {step / 1000:.0%} of all steps, loss 0.5" for step in (1, 11, 21)]
