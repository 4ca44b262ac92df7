"""Templates of ``modyn-dagster init``: their projects pass the check and their own tests, and have the same bytes every time."""

import os
import shlex
import subprocess
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from modyn_dagster.cli import main
from modyn_dagster.cli.init.command import STREAMS
from modyn_dagster.cli.init.folder import TEMPLATES, render
from modyn_dagster.spec.load import load_project
from tests.project.test_runbook import require_command

ROOT = Path(__file__).parents[2]


#: The template whose script takes longest; `make test` has the others.
SLOW = "images"


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.soak("screens")] * (name == SLOW)) for name in STREAMS])
def template(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def project(template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A new project, whose modules leave the search path afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    result = CliRunner().invoke(main, ["init", f"of_{template}", "--template", template])
    assert result.exit_code == 0, result.stderr
    folder = tmp_path / f"of_{template}"
    monkeypatch.setenv("MODYN_PROJECT", str(folder))
    yield folder
    for name in [name for name in sys.modules if name.endswith(f"of_{template}_model")]:
        del sys.modules[name]


def test_a_project_of_a_template_passes_its_check(project: Path) -> None:
    checked = CliRunner().invoke(main, ["check", "--data"])
    assert checked.exit_code == 0, checked.stderr
    assert checked.stderr == ""
    assert set(load_project(project).pipelines) == {"by_amount", "by_time"}


def test_its_own_model_passes_its_tests_and_fits_its_pipelines(project: Path) -> None:
    sys.path.append(str(project / "code"))
    results = unittest.TestResult()
    unittest.TestLoader().discover(str(project / "code")).run(results)
    assert results.testsRun == 2
    assert results.wasSuccessful(), [*results.failures, *results.errors]
    # The comment of a pipeline says how to name it.
    for path in (project / "pipelines").iterdir():
        text = path.read_text()
        named = f'{{factory: "{project.name}_model:build"}}'
        assert named in text
        block, _, rest = text.partition("  model: ")[2].partition("  optimizer:")
        path.write_text(text.replace(block, f"{named}\n").replace("  optimizer:" + rest, "  optimizer:" + rest))
    checked = CliRunner().invoke(main, ["check", "--data"])
    assert checked.exit_code == 0, checked.stderr


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.process
def test_its_script_writes_the_same_data_again(project: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "make_data.py").write_bytes((project / "make_data.py").read_bytes())
    done = subprocess.run([sys.executable, "make_data.py"], cwd=copy, check=True, capture_output=True, text=True)
    assert done.stdout.rstrip().endswith("in data/")
    first = content_of(project / "data")
    assert content_of(copy / "data") == first
    assert len(first) > 40


@pytest.mark.process
def test_its_makefile_calls_commands_that_there_are(project: Path) -> None:
    # A make that runs the tests hands its own flags on.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "-n", "check", "replay", "ui"]
    shown = subprocess.run(command, cwd=project, env=environment, check=True, capture_output=True, text=True)
    calls = [shlex.split(line) for line in shown.stdout.splitlines()]
    assert [" ".join(words[1:3]) for words in calls] == [
        "check --data",
        "dataset import",
        "pipeline replay",
        "pipeline replay",
        "pipeline compare",
        "up",
    ]
    for program, *words in calls:
        assert program == "modyn-dagster"
        require_command(words)


def test_every_value_of_a_template_is_known_and_none_is_put_in_twice() -> None:
    keys = [
        "NAME",
        "BY",
        "MODEL",
        "DATA",
        "ROOT",
        "FORMAT",
        "PATTERN",
        "TIME",
        "ID",
        "KIND",
        "CLASSES",
        "LABEL",
        "AMOUNT",
        "SPAN",
    ]
    values = {key: f"@{key}@" for key in [*keys, "INTERVAL", "INPUTS", "BUILT_IN", "METRICS"]} | {"NAME": "shop"}
    for folder in (path for path in TEMPLATES.iterdir() if path.is_dir()):
        files = render([folder.name], values)
        assert files
        assert all(b"@NAME@" not in content for content in files.values())
        assert not [path for path in files if "project" in path or path.endswith(".template")]


def test_the_package_carries_every_file_of_the_templates() -> None:
    """Patterns of setup.py, which are those of the wheel and of the source distribution."""
    text = (ROOT / "setup.py").read_text(encoding="utf-8")
    patterns = ["cli/init/templates/**/*.py", "cli/init/templates/**/*.template", "cli/init/templates/shared/gitignore"]
    assert all(f'"{pattern}"' in text for pattern in patterns)
    package = ROOT / "modyn_dagster"
    carried = {path for pattern in patterns for path in package.glob(pattern)}
    files = {path for path in TEMPLATES.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert files == carried
