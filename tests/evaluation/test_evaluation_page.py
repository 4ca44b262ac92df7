"""Intervals and the composite model of one's own of docs/evaluation.md: their blocks are valid and they obey the laws."""

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from modyn_dagster.evaluation import generate_intervals
from modyn_dagster.evaluation.composite.custom import check_composite_code, currently_chosen
from modyn_dagster.evaluation.intervals.custom import check_interval_code
from modyn_dagster.spec.evaluation import EvaluationSpec

PAGE = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")

MODULES = ("calendar", "rollout")


def code_blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def block(language: str, holding: str) -> str:
    [found] = [text for text in code_blocks(PAGE, language) if holding in text]
    return found


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's package of user code, ``shop``."""
    (tmp_path / "shop").mkdir()
    for name in MODULES:
        (tmp_path / "shop" / f"{name}.py").write_text(block("python", f"# shop/{name}.py"))
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("shop", *(f"shop.{module}" for module in MODULES)):
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


def test_a_composite_model_of_ones_own_is_valid_and_obeys_the_laws(shop: Path) -> None:
    (shop / "check.py").write_text(block("python", "check_composite"))
    runpy.run_path(str(shop / "check.py"))
    spec = EvaluationSpec.model_validate(yaml.safe_load(block("yaml", "shop.rollout"))["evaluation"])
    check_composite_code(spec.composite, source="pipeline shop")
    assert spec.composite is not None
    ends = np.array(["2024-01-01", "2024-01-10"], dtype="datetime64[us]")
    anchors = np.array(["2024-01-14", "2024-01-15", "2024-01-23", "2024-01-24"], dtype="datetime64[us]")
    assert currently_chosen(spec.composite, ends, anchors).tolist() == [-1, 0, 0, 1]
