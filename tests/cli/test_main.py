"""The command itself: help, exit codes, and errors as one sentence."""

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from modyn_dagster import __version__
from modyn_dagster.cli import COMMANDS, LazyCommand, LazyGroup, main

COMMAND_MODULE = """
import click
import psycopg2
from sqlalchemy.exc import OperationalError
from modyn_dagster.errors import DatabaseDown, ModelsMissing

@click.command()
def down():
    raise DatabaseDown("127.0.0.1:5432/modyn")

@click.command()
def unwritable():
    open("/proc/no/such/file", "w")

@click.command()
def interrupted():
    raise KeyboardInterrupt

@click.command()
def refused():
    driver = psycopg2.OperationalError("connection to server failed: refused\\n\\tis it running?")
    raise OperationalError("select :password", {"password": "secret"}, driver)

@click.command()
def incomplete():
    raise ModelsMissing("replay run 1 of p", "p", 1, 12, "000001-000003", "boom")

@click.command()
def broken():
    raise ZeroDivisionError("a mistake of ours")
"""


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> click.Group:
    """The real group over commands that fail in each of the ways a command can."""
    (tmp_path / "failing_commands.py").write_text(COMMAND_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "failing_commands", raising=False)
    names = ("down", "unwritable", "interrupted", "refused", "incomplete", "broken")
    lazy = {name: LazyCommand("failing_commands", name, "Fails.") for name in names}
    return LazyGroup("main", lazy=lazy, params=[click.Option(["--traceback"], is_flag=True)])


def test_help_lists_every_command_with_its_summary() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for name, lazy in COMMANDS.items():
        assert f"  {name} " in result.output
        assert lazy.summary in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0
    assert result.output.startswith("Usage:")


@pytest.mark.process
def test_help_imports_no_command() -> None:
    program = (
        "import sys\n"
        "from modyn_dagster.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "loaded = [n for n in sys.modules if n.startswith('modyn_dagster.') and not n.startswith('modyn_dagster.errors.')]\n"
        "assert sorted(loaded) == ['modyn_dagster.cli', 'modyn_dagster.errors'], loaded\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.process
def test_no_command_loads_torch_before_it_needs_it() -> None:
    program = (
        "import importlib, sys\n"
        "for module in sys.argv[1:]:\n"
        "    importlib.import_module(module)\n"
        "    assert not {'torch', 'mlflow', 'alibi_detect'} & set(sys.modules), module\n"
    )
    subprocess.run([sys.executable, "-c", program, *(lazy.module for lazy in COMMANDS.values())], check=True)


def test_the_version_is_the_packages() -> None:
    assert CliRunner().invoke(main, ["--version"]).output == f"modyn-dagster, version {__version__}\n"


@pytest.mark.parametrize("arguments", [["no-such-command"], ["--no-such-option"], ["ui", "--port", "many"]])
def test_wrong_usage_ends_with_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(main, arguments).exit_code == 2


def test_an_error_is_one_sentence_on_standard_error_and_ends_with_1(group: click.Group) -> None:
    result = CliRunner().invoke(group, ["down"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: Postgres at 127.0.0.1:5432/modyn does not answer")
    assert result.stderr.count("\n") == 1


def test_a_file_that_cannot_be_written_is_one_sentence_that_names_it(group: click.Group) -> None:
    result = CliRunner().invoke(group, ["unwritable"])
    assert (result.exit_code, result.stderr) == (1, "error: /proc/no/such/file: No such file or directory\n")


def test_the_traceback_is_shown_when_asked_for(group: click.Group) -> None:
    result = CliRunner().invoke(group, ["--traceback", "unwritable"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Traceback (most recent call last):")
    assert 'open("/proc/no/such/file", "w")' in result.stderr
    assert result.stderr.endswith("\nerror: /proc/no/such/file: No such file or directory\n")


def test_a_traceback_leaves_the_exit_code(group: click.Group) -> None:
    assert [CliRunner().invoke(group, [*options, "incomplete"]).exit_code for options in ([], ["--traceback"])] == [3, 3]


def test_an_error_that_was_not_foreseen_is_one_sentence_too_and_says_where_its_traceback_is(group: click.Group) -> None:
    result = CliRunner().invoke(group, ["broken"])
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith("error: ZeroDivisionError: a mistake of ours; modyn-dagster does not foresee this error")
    assert "--traceback" in result.stderr
    assert CliRunner().invoke(group, ["--traceback", "broken"]).stderr.startswith("Traceback (most recent call last):")


def test_a_variable_asks_for_tracebacks_as_the_option_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MODYN_PROJECT", str(tmp_path))
    assert CliRunner().invoke(main, ["pipeline", "status"]).stderr.startswith("error: environment: MODYN_PROJECT")
    monkeypatch.setenv("MODYN_TRACEBACK", "1")
    assert CliRunner().invoke(main, ["pipeline", "status"]).stderr.startswith("Traceback (most recent call last):")


def test_a_raw_error_of_the_database_is_one_line_without_statement_and_parameters(group: click.Group) -> None:
    result = CliRunner().invoke(group, ["refused"])
    assert result.stderr.startswith("error: OperationalError: (psycopg2.OperationalError) connection to server")
    assert "secret" not in result.stderr
    assert result.stderr.endswith("run the command again when that has passed (--traceback shows where it was met)\n")


def test_a_replay_without_some_models_ends_with_3(group: click.Group) -> None:
    result = CliRunner().invoke(group, ["incomplete"])
    assert result.exit_code == 3
    assert "1 of 12 triggers failed" in result.stderr


def test_ctrl_c_ends_with_130(group: click.Group) -> None:
    result = CliRunner().invoke(group, ["interrupted"])
    assert result.exit_code == 130
    assert "Traceback" not in result.output
