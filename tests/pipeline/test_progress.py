"""A replay on a terminal shows its batches and its trainings; while a model trains nothing is asked of the network."""

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from modyn_dagster.pipeline.replay.run import ReplayRequest
from modyn_dagster.pipeline.replay.walk import replay
from modyn_dagster.progress import kept_terminal, progress_bar, replay_bar
from modyn_dagster.training import TrainingProgress
from tests.projects.tiny import amount
from tests.terminal import terminal_of


def test_a_terminal_shows_batches_and_the_training_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch, 150)
    with replay_bar("by_amount") as bars:
        assert bars is not None
        bars.batch("day_03", 3, 7)
        bars.training(TrainingProgress(epoch=2, n_epochs=3, step=9, n_steps=9, loss=0.25))
    text = terminal.getvalue()
    assert "by_amount day_03" in text
    assert "3/7" in text
    assert "training, epoch 2 of 3 · loss 0.2500" in text
    assert "9/9" in text


def test_a_bar_of_a_command_shows_title_numbers_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with progress_bar("import clicks") as show:
        show(1, 4)
        show(4, 4)
    text = terminal.getvalue()
    assert "import clicks" in text
    assert "4/4" in text
    assert "0:00:00" in text


def test_bars_stay_on_the_terminal_while_standard_error_goes_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Dagster sends it there for the time of a run."""
    screen, descriptor = os.openpty()
    with os.fdopen(descriptor, "w") as terminal, open(tmp_path / "captured", "w") as captured:
        terminal_of(monkeypatch)
        monkeypatch.setattr(sys, "stderr", terminal)
        with kept_terminal():
            os.dup2(captured.fileno(), descriptor)
            assert not sys.stderr.isatty()
            with replay_bar("by_amount") as bars:
                assert bars is not None
                bars.batch("day_03", 3, 7)
        with replay_bar("by_amount") as bars:
            assert bars is None
    drawn = b""
    while b"3/7" not in drawn:
        drawn += os.read(screen, 1 << 16)
    os.close(screen)
    assert b"by_amount day_03" in drawn
    assert (tmp_path / "captured").read_text() == ""


def test_without_a_terminal_nothing_is_written(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # By these a log looks like a terminal to rich.
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with replay_bar("by_amount") as bars:
        assert bars is None
    for counted in (True, False):
        with progress_bar("import clicks", counted=counted) as show:
            show(1, 2)
    assert capsys.readouterr() == ("", "")


def counted(calls: list[str], name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def count(*given: Any, **named: Any) -> Any:
        calls.append(name)
        return method(*given, **named)

    return count


def test_no_step_of_a_training_asks_a_database_or_a_server(world_of, monkeypatch):
    """From the first step of a model to its last there is no statement to Postgres, and nothing goes through a socket."""
    world = world_of(amount())
    world.deliver(range(5))
    calls: list[str] = []
    sa.event.listen(world.platform.engine, "before_cursor_execute", lambda *_: calls.append("sql"))
    for name in ("connect", "send", "sendall", "sendto"):
        monkeypatch.setattr(socket.socket, name, counted(calls, name, getattr(socket.socket, name)))
    steps: list[tuple[int, int, int]] = []
    request = ReplayRequest("by_amount", world.keys(), "dagster-run")
    list(replay(world.platform, request, None, lambda told: steps.append((told.step, told.n_steps, len(calls)))))
    assert "sql" in calls, "they are counted"
    begins = [i for i, (step, _, _) in enumerate(steps) if step == 1]
    assert len(begins) == 2, "two models"
    for begin, end in zip(begins, [*begins[1:], len(steps)], strict=True):
        of_model = steps[begin:end]
        assert [step for step, _, _ in of_model] == list(range(1, of_model[0][1] + 1)), "it is told of every step"
        assert len({n_calls for *_, n_calls in of_model}) == 1
