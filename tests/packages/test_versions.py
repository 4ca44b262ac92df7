"""`make test-versions`: combinations of a Python and its dependencies, the Pythons of this machine, and what a copy holds."""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from hashlib import sha1
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.packages.conftest import ROOT
from tests.suites import PARTS, part_of_commit

pytestmark = pytest.mark.process


def test_each_python_is_tried_with_the_newest_and_the_oldest_dependencies(versions: Mapping[str, Any]) -> None:
    pythons = [re.findall(r"Programming Language :: Python :: (3\.\d+)", (ROOT / "setup.py").read_text())]
    assert pythons == [list(versions["PYTHONS"])]
    assert versions["combinations"]([]) == [f"{python}-{kind}" for python in versions["PYTHONS"] for kind in ("newest", "oldest")]
    assert versions["combinations"](["3.12", "3.13-oldest"]) == ["3.12-newest", "3.12-oldest", "3.13-oldest"]


def test_commits_are_spread_over_all_combinations_whatever_their_part_of_the_soak_suite(versions: Mapping[str, Any]) -> None:
    commits = [sha1(str(number).encode(), usedforsecurity=False).hexdigest() for number in range(20 * len(PARTS) * 6)]
    counts = Counter((versions["combination_of_commit"](commit), part_of_commit(commit)) for commit in commits)
    assert set(counts) == set(product(versions["COMBINATIONS"], PARTS))


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / ".ci" / "versions.py"), *arguments]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


def test_an_unknown_combination_is_refused_with_the_known_ones() -> None:
    result = run("3.9-newest")
    assert result.returncode == 2
    assert "no combination 3.9-newest; there are 3.11-newest, 3.11-oldest," in result.stderr


@pytest.mark.parametrize("arguments", [("3.13",), ("3.13-newest",), ()])
def test_a_python_that_is_not_on_the_machine_is_named(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    result = run(*arguments, PATH=str(tmp_path), PYENV_ROOT=str(tmp_path))
    assert result.returncode == 1
    assert "3.13-newest did not run: no Python 3.13 that starts was found" in result.stderr


def test_a_command_that_does_not_start_a_python_is_passed_over(
    versions: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    shim = tmp_path / f"python{python}"
    shim.write_text("#!/bin/sh\necho 'pyenv: command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    chosen = tmp_path / "versions" / f"{python}.1" / "bin" / f"python{python}"
    chosen.parent.mkdir(parents=True)
    chosen.symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert versions["interpreter_of"](python) is not None
    assert versions["interpreter_of"]("2.9") is None


def test_tests_run_in_a_copy_without_the_packages(versions: Mapping[str, Any], tmp_path: Path) -> None:
    files = list(versions["tracked"]("tests/packages", "modyn_dagster/py.typed"))
    assert "modyn_dagster/py.typed" in files
    versions["copied"]([file for file in files if not file.startswith("modyn_dagster/")], tmp_path / "tree")
    assert sorted(path.name for path in (tmp_path / "tree").iterdir()) == ["tests"]
    assert (tmp_path / "tree" / "tests" / "packages" / "test_versions.py").read_bytes() == Path(__file__).read_bytes()


def test_the_requirements_of_an_extra_keep_their_other_markers(versions: Mapping[str, Any]) -> None:
    declared = ["numpy>=1.26,<3", 'numpy>=2.1; python_version >= "3.13"', 'numpy<2; python_version < "3.13" and extra == "a"']
    assert versions["requirements_of"]({"a"}, declared) == ['numpy<2; python_version < "3.13"']
    assert versions["requirements_of"]({"core"}, declared) == declared[:2]


def workflow(name: str) -> Any:
    return yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())


def commands_of(job: Any) -> str:
    return "\n".join(step.get("run", "") for step in job["steps"])


def test_the_workflow_of_a_fork_runs_targets_that_there_are(versions: Mapping[str, Any]) -> None:
    jobs = workflow("tests")["jobs"]
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = {target for job in jobs.values() for target in re.findall(r"\bmake ([a-z-]+)", commands_of(job))}
    assert called
    assert called <= targets
    assert jobs["versions"]["strategy"]["matrix"]["combination"] == list(versions["COMBINATIONS"])


def test_wheels_are_built_for_each_python_on_both_processors(versions: Mapping[str, Any]) -> None:
    import tomllib

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    assert settings["build"] == [f"cp{python.replace('.', '')}-manylinux_*" for python in versions["PYTHONS"]]
    jobs = workflow("wheels")["jobs"]
    images = {each["arch"] for each in jobs["wheels"]["strategy"]["matrix"]["include"]}
    assert images == {"x86_64", "aarch64"}
    assert any("cibuildwheel" in step.get("uses", "") for step in jobs["wheels"]["steps"])
    # Nothing is published but by a tag, from jobs that built all files.
    assert jobs["publish"]["if"] == "startsWith(github.ref, 'refs/tags/v')"
    assert set(jobs["publish"]["needs"]) == {"wheels", "source"}


def test_every_action_of_a_workflow_is_of_a_fixed_version() -> None:
    uses = [
        step["uses"]
        for name in ("tests", "wheels")
        for job in workflow(name)["jobs"].values()
        for step in job["steps"]
        if "uses" in step
    ]
    assert uses
    assert [use for use in uses if not re.fullmatch(r"[\w./-]+@(v\d[\d.]*|release/v\d+)", use)] == []
