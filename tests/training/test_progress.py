import io
import sys

import pytest

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
        show(TrainingProgress(epoch=2, n_epochs=3, step=5, n_steps=9, loss=0.25))
    assert "trained_once 1" in terminal.getvalue()
    assert "5/9" in terminal.getvalue()
    assert "loss 0.2500" in terminal.getvalue()


def test_without_a_terminal_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with training_bar("trained_once 1") as show:
        assert show is None
    assert capsys.readouterr() == ("", "")
