"""Examples of docs/triggering.md: blocks are valid, code runs, and policies obey the laws."""

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pydantic import TypeAdapter

from modyn_dagster.spec.triggers.measured import DetectorTriggerSpec
from modyn_dagster.spec.triggers.trigger import TriggerSpec
from modyn_dagster.triggering import build_policy, simulate
from modyn_dagster.triggering.conformance import check_policy
from modyn_dagster.triggering.detectors import DetectorReader
from modyn_dagster.triggering.user_code import user_code_errors
from tests.triggering.drift.drifting import normal, score

PAGE = (Path(__file__).parents[2] / "docs" / "triggering.md").read_text(encoding="utf-8")
_TRIGGER: TypeAdapter[TriggerSpec] = TypeAdapter(TriggerSpec)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


TRIGGERS = [yaml.safe_load(block)["trigger"] for block in blocks("yaml")]
#: Modules of the page's package of user code.
SHOP = ("policies", "drift", "criteria", "detectors")
BUILT_IN = [trigger for trigger in TRIGGERS if "shop." not in str(trigger)]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's package of user code, ``shop``, with ``policies``, ``drift``, ``criteria`` and ``detectors``."""
    (tmp_path / "shop").mkdir()
    for name in SHOP:
        [module] = [block for block in blocks("python") if block.startswith(f"# shop/{name}.py")]
        (tmp_path / "shop" / f"{name}.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("shop", *(f"shop.{module}" for module in SHOP)):
        sys.modules.pop(name, None)


def run(block: str, folder: Path) -> dict:
    path = folder / "block.py"
    path.write_text(block)
    return runpy.run_path(str(path))


@pytest.mark.parametrize("trigger", BUILT_IN, ids=lambda trigger: trigger["kind"])
def test_every_block_builds_its_policy(trigger):
    build_policy(trigger)


def test_every_kind_has_an_example():
    assert {trigger["kind"] for trigger in TRIGGERS} == set(_TRIGGER.json_schema()["discriminator"]["mapping"])


def test_the_policy_of_ones_own_is_built_in_twenty_lines_and_passes_the_suite(shop):
    policies = (shop / "shop" / "policies.py").read_text()
    body = policies[policies.index("class Doubling") :]
    assert sum(bool(line.strip()) for line in body.splitlines()) <= 20
    [check] = [block for block in blocks("python") if "check_policy(" in block]
    run(check, shop)
    [custom] = [trigger for trigger in TRIGGERS if trigger["kind"] == "custom"]
    assert build_policy(custom).state_dict() == {"upcoming": 1000}


def test_the_drift_metric_of_ones_own_passes_the_suite_and_finds_drift(shop):
    [check] = [block for block in blocks("python") if "check_metric(" in block]
    run(check, shop)
    [block] = [trigger for trigger in TRIGGERS if "shop.drift" in str(trigger)]
    assert list(user_code_errors(_TRIGGER.validate_python(block), source="pipeline shop")) == []
    [metric] = block["metrics"].values()
    assert score(metric, *normal(0, 60, 40, 3, shift=1.0), p_values=True) == pytest.approx(1 / 101)


def test_the_criterion_of_ones_own_passes_the_suite_and_fires_at_the_second_of_two_scores(shop):
    [block] = [trigger for trigger in TRIGGERS if "shop.criteria" in str(trigger)]
    assert list(user_code_errors(_TRIGGER.validate_python(block), source="pipeline shop")) == []
    check_policy(block | {"every": 10, "windows": {"by": "amount", "reference": 30, "current": 20}})
    decisions = simulate(build_policy(block | {"every": 1}), range(7), scores=[0.0, 0.0, 0.1, 0.0, 0.1, 0.1, 0.0])
    assert [decision.index for decision in decisions if decision.fire and decision.score is not None] == [5]


def test_the_detector_of_ones_own_is_written_in_thirty_lines_passes_the_suite_and_sounds_where_errors_begin(shop):
    assert len((shop / "shop" / "detectors.py").read_text().splitlines()) <= 30
    [check] = [block for block in blocks("python") if "check_detector(" in block]
    run(check, shop)
    [block] = [trigger for trigger in TRIGGERS if "shop.detectors" in str(trigger)]
    spec = _TRIGGER.validate_python(block)
    assert isinstance(spec, DetectorTriggerSpec)
    assert list(user_code_errors(spec, source="pipeline shop")) == []
    reader = DetectorReader(spec.detector)
    assert reader.read([0.0] * 100) == 0
    assert reader.read([1.0] * 9) == 0
    assert reader.read([1.0] * 2) == 1


def test_the_policy_that_measures_passes_the_suite(shop):
    [measuring] = [block for block in blocks("python") if "class DoublingWhileBad" in block]
    policy = run(measuring, shop)["DoublingWhileBad"]
    check_policy(lambda: policy(first=10))


def test_the_notebook_example_prints_a_decision_per_point(shop, capsys):
    [notebook] = [block for block in blocks("python") if "simulate(policy" in block]
    run(notebook, shop)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert [line.startswith("True") for line in lines] == [True, *[False] * 5, True, *[False] * 3]
