"""Messages of commands: broken between words in a terminal, in one line in a log."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.cli import COMMANDS, main
from modyn_dagster.cli.console import say

WORDS = st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=60)


def fits(text: str, width: int) -> bool:
    """Every line is as short, or one word that is longer."""
    return all(len(line) <= width or " " not in line.strip() for line in text.splitlines())


@given(st.lists(WORDS, min_size=1, max_size=40), st.integers(20, 120))
def test_a_message_fits_and_loses_no_word(words: list[str], width: int) -> None:
    with pytest.MonkeyPatch.context() as patch, CliRunner().isolation() as (out, *_):
        patch.setenv("COLUMNS", str(width))
        say(" ".join(words))
        told = out.getvalue().decode()
    assert fits(told, width)
    assert told.split() == words


def test_a_log_has_a_message_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    say("word " * 100)
    say("first\n  second", err=True)
    assert capsys.readouterr() == ("word " * 100 + "\n", "first\n  second\n")


def test_errors_of_commands_fit_the_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("MODYN_PROJECT", str(tmp_path))
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "p.yaml").write_text(
        "{name: p, dataset: d, trigger: {kind: drift, evry: 3}, training: {epochs: -1}}"
    )
    for command in (["check"], ["check", "--data"], ["up"], ["pipeline", "status"], ["demo"], ["model", "live", "p"]):
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 1
        assert result.stderr.startswith("error:")
        assert fits(result.output, 80), result.output


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=" ".join)
def test_help_fits_the_terminal(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert fits(CliRunner().invoke(main, [*command, "--help"]).output, 80)
