"""Every benchmark starts as ``python benchmarks/<name>.py``, from any folder."""

from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))
COMMANDS = [path for path in FILES if 'if __name__ == "__main__":\n    main()' in path.read_text()]


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.name)
def test_a_command_finds_the_repository_before_it_imports_from_it(path):
    before, found, _ = path.read_text().partition("sys.path[0] = str(Path(__file__).resolve().parents[1])\n")
    assert found
    assert "\nfrom benchmarks" not in before
    assert "\nfrom modyn_dagster" not in before


def test_there_are_commands():
    assert len(COMMANDS) >= 12
