from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.table import MakeTable, Table


@pytest.fixture
def table() -> MakeTable:
    """Makes a table of the given columns, labels, targets or blobs."""
    return Table


@pytest.fixture
def separable() -> Table:
    """300 samples of two classes that a line tells apart."""
    rng = np.random.default_rng(7)
    left, right = rng.normal(5, 3, 300), rng.normal(-100, 40, 300)
    labels = (left - 5 > (right + 100) / 40).astype(np.int64)
    return Table({"left": left, "right": right, "label": labels}, labels=labels)


@pytest.fixture
def user_code(monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of an importable module of user code."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return "training_user_code"


@pytest.fixture
def parsers(user_code: str) -> str:
    """Name of an importable module of parsers, which is imported without torch."""
    return "parsing_user_code"


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Give torch two threads for the time of a test."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
