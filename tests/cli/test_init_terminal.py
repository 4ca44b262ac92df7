"""``modyn-dagster init`` at a terminal: questions about columns, and none with ``--no-input``."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from modyn_dagster.cli.init.look import look_at
from modyn_dagster.cli.init.questions import Asked, choose_columns
from tests.cli.drawn_tables import DAYS, N, plain, table


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, for data and project."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answers(text: str) -> tuple[str, str, str | None]:
    """Columns of time, label and id that a person chooses by numbers."""
    with CliRunner().isolation(input=text):
        chosen = choose_columns(look_at(Path("data.csv")), "shop", Asked(None, None, None, None, None), ask=True)
    return chosen.time.column, chosen.label.column, chosen.id


def test_at_a_terminal_enter_takes_the_guesses_and_a_number_another_column() -> None:
    Path("data.csv").write_text(plain(stop=DAYS, id=list(range(N)), y=[1, 2] * 30))
    assert answers("\n\n\n") == ("time", "label", "id")
    # Times: time, stop. Others: x, label, id, y beside the time that is left. Ids: none, and the rest.
    assert answers("1\n4\n0\n") == ("stop", "y", None)


def test_at_a_terminal_there_is_no_default_where_nothing_can_be_guessed() -> None:
    Path("data.csv").write_text(table({"begin": DAYS, "end": DAYS, "a": [0.5, 1.5] * 30, "b": [0, 1] * 30}))
    # Enter alone is asked again.
    assert answers("\n1\n\n2\n\n") == ("end", "b", None)


@pytest.mark.process
def test_no_input_asks_nothing_at_a_terminal(here: Path) -> None:
    Path("data.csv").write_text(plain())
    command = [str(Path(sys.executable).with_name("modyn-dagster")), "init", "--from", "data.csv"]
    asking, quiet = (at_a_terminal([*command, name, *more]) for name, more in (("asked", []), ("told", ["--no-input"])))
    assert "Column of the time" in asking
    assert "Column of the" not in quiet
    assert (here / "told" / "datasets" / "told.yaml").is_file()


def at_a_terminal(command: list[str]) -> str:
    """Output of a command whose input is a terminal at which somebody has pressed the keys for the end of input."""
    controller, terminal = pty.openpty()
    try:
        os.write(controller, b"\x04")
        result = subprocess.run(command, stdin=terminal, capture_output=True, text=True, check=False)
    finally:
        os.close(controller)
        os.close(terminal)
    return result.stdout + result.stderr
