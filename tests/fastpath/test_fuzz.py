"""Thousands of damaged files, each batch of them in one child process: whatever is in a file, the process lives."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


TARGETS = [
    ("fuzz_store", "index", 500),
    ("fuzz_store", "index_of_places", 500),
    ("fuzz_store", "deleted", 500),
    ("fuzz_training_set", "training_set", 2000),
]


@pytest.mark.process
@pytest.mark.parametrize(
    ("program", "target", "variants"),
    [
        *((program, target, variants // 10) for program, target, variants in TARGETS),
        *(pytest.param(program, target, 4 * variants, marks=pytest.mark.soak("fuzz")) for program, target, variants in TARGETS),
    ],
    ids=str,
)
def test_a_damaged_file_is_an_error_or_read_as_it_is_and_never_a_crash(
    tmp_path: Path, program: str, target: str, variants: int
) -> None:
    command = [sys.executable, "-X", "faulthandler", "-m", f"tests.fastpath.{program}", target, str(tmp_path), "1", str(variants)]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert child.returncode == 0, f"exit {child.returncode} with the file as it is in {tmp_path}\n{child.stderr[-6000:]}"
