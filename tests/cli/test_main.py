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
from modyn_dagster.errors import DatabaseDown

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
def broken():
    raise ZeroDivisionError("a mistake of ours")
"""


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> click.Group:
    """The real group over commands that fail in each of the ways a command can."""
    (tmp_path / "failing_commands.py").write_text(COMMAND_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "failing_commands", raising=False)
    lazy = {name: LazyCommand("failing_commands", name, "Fails.") for name in ("down", "unwritable", "interrupted", "broken")}
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
    assert isinstance(CliRunner().invoke(group, ["--traceback", "unwritable"]).exception, FileNotFoundError)


def test_the_traceback_is_shown_when_asked_for(group: click.Group) -> None:
    result = CliRunner().invoke(group, ["--traceback", "down"])
    assert type(result.exception).__name__ == "DatabaseDown"


def test_a_mistake_of_ours_is_not_dressed_up_as_the_users(group: click.Group) -> None:
    assert isinstance(CliRunner().invoke(group, ["broken"]).exception, ZeroDivisionError)


def test_ctrl_c_ends_with_130(group: click.Group) -> None:
    result = CliRunner().invoke(group, ["interrupted"])
    assert result.exit_code == 130
    assert "Traceback" not in result.output
