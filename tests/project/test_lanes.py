"""Distribution of tests over several processes of pytest."""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.lanes import LANE_OF, LANES

ROOT = Path(__file__).parents[2]
TWO_TESTS = "def test_one(): pass\ndef test_two(): pass\n"


def test_lanes_name_files_that_are_there() -> None:
    assert [file for file in LANE_OF if not (ROOT / file).is_file()] == []


@pytest.mark.process
def test_the_tests_of_a_lane_and_those_of_a_file_go_to_one_worker(tmp_path: Path) -> None:
    """Asked of pytest itself: marks that pytest-xdist offers for this were without effect for a while, and nobody saw it."""
    files = [*LANE_OF, *(f"tests/test_{number}.py" for number in range(8))]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(TWO_TESTS)
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_xdist_make_scheduler\n")
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT}\n")
    command = [sys.executable, "-m", "pytest", "-v", "-n", "3", "--dist", "loadgroup", "-p", "no:cacheprovider"]
    result = subprocess.run([*command, "--import-mode=importlib"], cwd=tmp_path, capture_output=True, text=True, check=False)
    ran = re.findall(r"\[gw(\d)\].* PASSED (\S+)::", result.stdout)
    assert len(ran) == 2 * len(files), result.stdout + result.stderr
    workers = defaultdict(set)
    for worker, file in ran:
        workers[LANE_OF.get(file, file)].add(worker)
    assert all(len(found) == 1 for found in workers.values())
    assert len({next(iter(workers[lane])) for lane in LANES}) == 3
