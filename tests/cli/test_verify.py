"""``modyn-dagster verify``, ``dataset verify`` and ``repair``: lines, JSON and exit codes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modyn_dagster.cli import main
from modyn_dagster.cli.verify import DAMAGED
from modyn_dagster.settings import Settings
from tests.pipeline.integrity.homes import flip
from tests.pipeline.world import World, make_world
from tests.projects.tiny import amount


@pytest.fixture
def world(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_world(settings, tmp_path / "project", [amount(every=40)])
    for name, value in made.settings.environment().items():
        monkeypatch.setenv(name, value)
    made.deliver([0, 1])
    made.replay("by_amount")
    yield made
    made.close()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def test_damage_is_one_line_each_and_an_exit_code_of_its_own_until_it_is_repaired(world: World) -> None:
    sound = run("verify", "--rate", "1000")
    assert (sound.exit_code, sound.stderr) == (0, "")
    assert sound.stdout.endswith("bytes read: 0 damaged, 0 missing, 0 unverified, 0 unnamed\n")
    predictions = sorted((world.platform.home / "predictions").rglob("*.codes"))[0]
    source = world.folder / "data" / "day_01.csv"
    flip(predictions, 80)
    flip(source, 60)
    found = run("verify")
    assert found.exit_code == DAMAGED == 3
    assert sorted(line.partition("(")[0] for line in found.stderr.splitlines()) == [
        f"damaged: predictions {predictions.relative_to(world.platform.home)} ",
        f"damaged: sources {source} ",
    ]
    assert found.stdout.endswith("2 damaged, 0 missing, 0 unverified, 0 unnamed\n")
    repaired = run("repair")
    assert repaired.exit_code == DAMAGED
    assert repaired.stdout.splitlines()[0].startswith("repaired: predictions ")
    assert repaired.stdout.endswith("1 files repaired, 1 not repaired\n")
    assert "not repaired: it is not derived from anything that is kept here; damaged: sources" in repaired.stderr
    flip(source, 60)
    assert run("repair").stdout.endswith("0 files repaired, 0 not repaired\n")
    assert run("verify").exit_code == 0


@pytest.mark.soak("screens")
def test_a_dataset_is_verified_by_name_and_told_in_json(world: World) -> None:
    flip(world.folder / "data" / "day_01.csv", 60)
    flip(next((world.platform.home / "predictions").rglob("*.codes")), 80)
    result = run("dataset", "verify", "tiny", "--json")
    assert result.exit_code == DAMAGED
    content = json.loads(result.stdout)
    assert [(finding["kind"], finding["state"]) for finding in content["findings"]] == [("sources", "damaged")]
    assert content["bytes_read"] > 0
    assert run("verify", "--pipeline", "by_amount", "--kind", "models").exit_code == 0
    assert run("verify", "--dataset", "none").exit_code == 1
    assert run("verify", "--kind", "none").exit_code == 2
    outcome = json.loads(run("repair", "--pipeline", "by_amount", "--json").stdout)
    assert [(file["kind"], file["repaired"]) for file in outcome["files"]] == [("predictions", True)]
