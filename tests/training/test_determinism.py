"""Two processes, one model: what replay and production rely on."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.train_in_a_process import bits


@pytest.mark.process
def test_another_process_trains_and_predicts_the_same_bits_and_loads_only_what_it_uses() -> None:
    command = [sys.executable, "-m", "tests.training.train_in_a_process", "3", "1000", "cold"]
    ended = subprocess.run(command, cwd=Path(__file__).parents[2], check=False, capture_output=True)
    assert ended.returncode == 0, ended.stderr.decode()
    elsewhere = ended.stdout
    assert elsewhere == bits(3, 64, "warm")
    assert elsewhere != bits(4, 64, "cold")
