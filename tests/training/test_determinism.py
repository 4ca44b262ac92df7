"""Two processes, one model: what replay and production rely on."""

import subprocess
import sys
from pathlib import Path

from tests.training.train_in_a_process import bits


def test_another_process_trains_and_predicts_the_same_bits() -> None:
    command = [sys.executable, "-m", "tests.training.train_in_a_process", "3", "1000", "cold"]
    elsewhere = subprocess.run(command, cwd=Path(__file__).parents[2], check=True, capture_output=True).stdout
    assert elsewhere == bits(3, 64, "warm")
    assert elsewhere != bits(4, 64, "cold")
