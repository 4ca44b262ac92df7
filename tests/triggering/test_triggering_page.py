"""Examples of docs/triggering.md: blocks are valid, code runs, and policies obey the laws."""

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pydantic import TypeAdapter

from modyn_dagster.spec.triggers.trigger import TriggerSpec
from modyn_dagster.triggering import build_policy
from modyn_dagster.triggering.conformance import check_policy

PAGE = (Path(__file__).parents[2] / "docs" / "triggering.md").read_text(encoding="utf-8")
_TRIGGER: TypeAdapter[TriggerSpec] = TypeAdapter(TriggerSpec)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


TRIGGERS = [yaml.safe_load(block)["trigger"] for block in blocks("yaml")]
BUILT_IN = [trigger for trigger in TRIGGERS if trigger["kind"] != "custom"]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's package of user code, ``shop.policies``."""
    [policies] = [block for block in blocks("python") if block.startswith("# shop/policies.py")]
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "policies.py").write_text(policies)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for module in ("shop", "shop.policies"):
        sys.modules.pop(module, None)


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
