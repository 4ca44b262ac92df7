"""Messages of commands: broken between words in a terminal, in one line in a log."""

import ast
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster import cli
from modyn_dagster.cli import COMMANDS, main
from modyn_dagster.cli.console import say
from tests.terminal import terminal_of

WORDS = st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=60)


def fits(text: str, width: int) -> bool:
    """Every line is as short, or one word that is longer."""
    return all(len(line) <= width or " " not in line.strip() for line in text.splitlines())


@given(st.lists(WORDS, min_size=1, max_size=40), st.integers(20, 120))
def test_a_message_fits_and_loses_no_word(words: list[str], width: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        terminal = terminal_of(patch, width)
        say(" ".join(words), err=True)
    assert fits(terminal.getvalue(), width)
    assert terminal.getvalue().split() == words


def test_a_log_has_a_message_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    say("word " * 100)
    say("first\n  second", err=True)
    assert capsys.readouterr() == ("word " * 100 + "\n", "first\n  second\n")


@pytest.mark.parametrize(
    "command", [["check"], ["check", "--data"], ["up"], ["pipeline", "status"], ["demo"], ["model", "live", "p"]], ids=" ".join
)
def test_errors_of_commands_fit_the_terminal(command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MODYN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MODYN_PROJECT", str(tmp_path))
    (tmp_path / "pipelines").mkdir()
    spec = "{name: p, dataset: d, trigger: {kind: drift, evry: 3}, training: {epochs: -1}}"
    (tmp_path / "pipelines" / "p.yaml").write_text(spec)
    terminal = terminal_of(monkeypatch)
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 1
    assert terminal.getvalue().startswith("error:")
    assert fits(terminal.getvalue(), 80), terminal.getvalue()


def test_delete_and_model_commands_print_no_unbroken_message() -> None:
    folder = Path(cli.__file__).parent
    for path in [folder / "dataset" / "delete.py", *sorted((folder / "model").glob("*.py"))]:
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        echoed = [ast.unparse(call.args[0]) for call in calls if ast.unparse(call.func) == "click.echo"]
        assert all(text.startswith("json.dumps(") for text in echoed), path


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=" ".join)
def test_help_fits_the_terminal(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert fits(CliRunner().invoke(main, [*command, "--help"]).output, 80)
