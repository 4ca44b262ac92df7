"""Tests of every CUDA path, for `make gpu` alone: no other suite collects this folder, and it needs no Postgres or Dagster.

``python -m pytest --confcutdir=tests/gpu --gpu=cuda tests/gpu``. Without a GPU they fail rather than pass over anything. With
``--gpu=cpu`` they rehearse on the processor what does not need a GPU, so that they are known to run before one is there.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.table import Table

HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Name the device."""
    parser.addoption("--gpu", metavar="DEVICE", default="cuda", help="cuda, cuda:1, or cpu for a rehearsal")


def pytest_sessionstart(session: pytest.Session) -> None:
    """End at once where there is no GPU, with exit code 1."""
    device = session.config.getoption("gpu")
    if device != "cpu" and not torch.cuda.is_available():
        pytest.exit(f"this machine has no CUDA device (torch {torch.__version__}); nothing was run", returncode=1)


@pytest.fixture(scope="session")
def device(pytestconfig: pytest.Config) -> str:
    """Device of the tests, as a spec names it."""
    return str(pytestconfig.getoption("gpu"))


@pytest.fixture
def gpu(device: str) -> torch.device:
    """Device of tests that have nothing to show on a processor."""
    if device == "cpu":
        pytest.skip("a rehearsal has no GPU")
    return torch.device(device)


@pytest.fixture(autouse=True)
def own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """User code that some specs name."""
    for folder in (HERE, HERE.parent / "training"):
        monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


@pytest.fixture
def separable() -> Table:
    """300 samples of two classes that a line tells apart."""
    rng = np.random.default_rng(7)
    left, right = rng.normal(5, 3, 300), rng.normal(-100, 40, 300)
    return Table({"left": left, "right": right}, labels=(left - 5 > (right + 100) / 40).astype(np.int64))
