"""The generator of intervals of docs/evaluation.md: its block is valid, it obeys the laws, and it gives calendar quarters."""

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from modyn_dagster.evaluation import generate_intervals
from modyn_dagster.evaluation.intervals.custom import check_interval_code
from modyn_dagster.spec.evaluation import EvaluationSpec

PAGE = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")


def block(language: str, holding: str) -> str:
    [found] = [text for text in re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) if holding in text]
    return str(found)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's package of user code, ``shop``."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "calendar.py").write_text(block("python", "# shop/calendar.py"))
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("shop", "shop.calendar"):
        sys.modules.pop(name, None)


def test_intervals_of_ones_own_are_valid_and_obey_the_laws(shop: Path) -> None:
    (shop / "check.py").write_text(block("python", "check_intervals"))
    runpy.run_path(str(shop / "check.py"))
    spec = EvaluationSpec.model_validate(yaml.safe_load(block("yaml", "shop.calendar"))["evaluation"])
    check_interval_code(spec.intervals, source="pipeline shop")
    found = generate_intervals(spec.intervals, np.datetime64("2024-02-10", "us"), np.datetime64("2024-06-01", "us"))
    assert [(str(each.start)[:10], str(each.end)[:10]) for each in found] == [
        ("2024-02-01", "2024-05-01"),
        ("2024-05-01", "2024-08-01"),
    ]
