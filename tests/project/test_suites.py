"""Membership of tests in `make check`, `make test` and the parts of `make soak`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.suites import DIVIDED, LAWS, MARKED, PARTS, STARTING_FOLDERS, part_of_commit

ROOT = Path(__file__).parents[2]
TESTS = """
import os, pytest
from hypothesis import given, strategies as st

@pytest.fixture
def s3():
    return 1

def test_plain(): pass
def test_of_a_server(s3): pass
def test_that_forks():
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)
@pytest.mark.process
def test_that_may_fork(): test_that_forks()
@pytest.mark.long
def test_that_trains(): pass
@pytest.mark.law
def test_simulation(): pass
@pytest.mark.soak("fuzz")
def test_of_fuzz(): pass
@pytest.mark.soak("laws-fastpath")
def test_of_many_layers(): pass
@pytest.mark.soak("labels")
@pytest.mark.parametrize("number", range(12))
def test_of_labels(number): pass
@given(st.booleans())
def test_law(value): pass
"""
SETTINGS = """
[pytest]
markers =
    process
    long
    law
    soak
pythonpath = {}
addopts = --strict-markers --import-mode=importlib
"""


def ran(folder: Path, *arguments: str) -> tuple[set[str], str]:
    """Names of the tests that passed, and all that was said."""
    (folder / "tests" / "fastpath").mkdir(parents=True, exist_ok=True)
    (folder / "tests" / "fastpath" / "test_some.py").write_text(TESTS)
    (folder / "conftest.py").write_text("from tests.suites import pytest_addoption, pytest_configure\n")
    (folder / "pytest.ini").write_text(SETTINGS.format(ROOT))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-p",
        "no:cacheprovider",
        "-p",
        "hypothesis.extra.pytestplugin",
        "tests",
        *arguments,
    ]
    # Without the plugins of other packages, which take two seconds to load.
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    said = result.stdout + result.stderr
    return {line.split("::")[1].split()[0] for line in said.splitlines() if "PASSED" in line}, said


@pytest.mark.process
def test_without_an_option_all_but_the_soak_suite_runs(tmp_path: Path) -> None:
    passed, said = ran(tmp_path)
    expected = {"plain", "of_a_server", "that_forks", "that_may_fork", "that_trains", "law", "simulation"}
    assert passed == {f"test_{name}" for name in expected}, said


@pytest.mark.process
def test_the_fast_suite_has_what_starts_no_process_and_refuses_unmarked_ones_that_do(tmp_path: Path) -> None:
    passed, said = ran(tmp_path, "--fast")
    assert passed == {"test_plain", "test_law", "test_simulation"}, said
    assert "starts a process (os.fork): mark it with pytest.mark.process" in said


@pytest.mark.process
@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("fuzz", {"test_of_fuzz"}),
        ("laws-fastpath", {"test_law", "test_simulation", "test_of_many_layers"}),
        ("labels", {f"test_of_labels[{number}]" for number in range(12)}),
        (
            "all",
            {"test_of_fuzz", "test_law", "test_simulation", "test_of_many_layers", *(f"test_of_labels[{n}]" for n in range(12))},
        ),
    ],
)
def test_a_part_of_the_soak_suite_runs_alone(tmp_path: Path, part: str, expected: set[str]) -> None:
    passed, said = ran(tmp_path, "--soak", part)
    assert passed == expected, said


@pytest.mark.soak("laws-data")
@pytest.mark.process
def test_the_pieces_of_a_part_have_each_of_its_tests_once(tmp_path: Path) -> None:
    pieces = [ran(tmp_path, "--soak", f"labels-{piece}")[0] for piece in range(1, DIVIDED["labels"] + 1)]
    assert all(pieces)
    assert sorted(name for piece in pieces for name in piece) == sorted(f"test_of_labels[{number}]" for number in range(12))


@pytest.mark.process
def test_a_part_that_there_is_not_is_refused_with_those_there_are(tmp_path: Path) -> None:
    _, said = ran(tmp_path, "--soak", "fuzzy")
    assert f"--soak fuzzy: no such part of the soak suite; there are {', '.join(PARTS)}, and all" in said


@pytest.mark.process
def test_a_mark_of_a_part_that_there_is_not_is_refused_with_its_test(tmp_path: Path) -> None:
    tests = tmp_path / "tests" / "test_other.py"
    tests.parent.mkdir()
    tests.write_text('import pytest\n@pytest.mark.soak("fuzzy")\ndef test_one(): pass\n')
    _, said = ran(tmp_path)
    assert "tests/test_other.py::test_one: expected soak(<part>) with one of" in said


def test_commits_take_turns() -> None:
    assert {part_of_commit(f"{number:040x}") for number in range(len(PARTS))} == set(PARTS)
    assert part_of_commit("f" * 40) == part_of_commit("f" * 40)


def test_parts_and_folders_are_there() -> None:
    assert not set(MARKED) & set(LAWS)
    folders = [folder for folders in LAWS.values() for folder in folders]
    assert [folder for folder in [*folders, *STARTING_FOLDERS] if not (ROOT / folder).is_dir()] == []


def test_every_law_is_in_a_part() -> None:
    folders = [ROOT / folder for folders in LAWS.values() for folder in folders]
    written = [path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    laws = [path for path in written if re.search(r"^@given\(", path.read_text(encoding="utf-8"), re.MULTILINE)]
    assert len(laws) > 50
    assert [path for path in laws if not any(path.is_relative_to(folder) for folder in folders)] == []
