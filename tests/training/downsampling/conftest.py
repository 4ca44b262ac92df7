from pathlib import Path

import numpy as np
import pytest

from tests.training.table import Table


@pytest.fixture
def separable() -> Table:
    """200 samples of two classes that a line tells apart."""
    rng = np.random.default_rng(7)
    left, right = rng.normal(5, 3, 200), rng.normal(-100, 40, 200)
    labels = (left - 5 > (right + 100) / 40).astype(np.int64)
    return Table({"left": left, "right": right}, labels=labels)


@pytest.fixture
def user_code(monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of an importable module of user code."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    return "training_user_code"
