"""``modyn-dagster disk usage``: every byte below the home folder has a kind, and most have an owner."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from modyn_dagster.cli import main
from modyn_dagster.pipeline.operate.disk_usage import disk_usage
from modyn_dagster.settings import Settings
from tests.pipeline.world import World, make_world
from tests.projects.tiny import DATASET, amount


@pytest.fixture
def world(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Two pipelines with the same models, one of them with a store of its own, and files of every kind."""
    pipelines = [amount(every=40), amount("a_pipeline_whose_name_is_as_long_as_the_name_of_a_pipeline_may_get", every=40)]
    pipelines.append(amount("remote", model_store={"root": "memory://elsewhere"}))
    pipelines.append(amount("own", every=50, model_store={"root": "own"}))
    made = make_world(settings, tmp_path / "project", pipelines)
    for name, value in made.settings.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COLUMNS", "80")
    made.deliver([0, 1])
    made.live_until_idle("by_amount")
    made.live_until_idle("own")
    yield made
    made.close()


def usage(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["disk", "usage", *arguments], catch_exceptions=False)


def bytes_on_disk(*folders: Path) -> int:
    stats = [path.lstat() for folder in folders for path in folder.rglob("*") if path.is_file()]
    return sum({(stat.st_dev, stat.st_ino): stat.st_blocks * 512 for stat in stats}.values())


@pytest.mark.soak("screens")
def test_every_file_is_counted_once_by_kind_and_owner(world: World) -> None:
    home = world.platform.home
    (home / "logs").mkdir()
    (home / "logs" / "mlflow.log").write_text("x" * 10_000)
    (home / "mine").write_text("y")
    [first, *_] = (home / "predictions").rglob("*.codes")
    os.link(first, first.with_name("second.codes"))
    measured = disk_usage(world.platform)
    by_owner = {(part.kind, part.owner): part for part in measured.parts}
    assert by_owner["indexes", DATASET].n_files == 2
    assert by_owner["training sets", "by_amount"].n_files == by_owner["models", "by_amount"].n_files == 2
    assert by_owner["models", "own"].n_files == 1
    assert by_owner["logs", "all"].n_bytes >= 10_000
    assert by_owner["other", "all"].n_files == 1
    assert by_owner["Postgres", DATASET].n_bytes > 0
    assert measured.elsewhere == ["memory://elsewhere"]
    assert sum(part.n_bytes for part in measured.parts if part.kind != "Postgres") == bytes_on_disk(home)
    assert measured.problem is None


def test_the_table_fits_a_terminal_and_json_is_for_scripts(world: World) -> None:
    result = usage()
    assert (result.exit_code, result.stderr) == (0, "")
    assert max(map(len, result.stdout.splitlines()[1:])) <= 80
    assert "training sets" in result.stdout
    assert "models at memory://elsewhere are not on this disk and not counted" in result.stdout
    content = json.loads(usage("--json").stdout)
    assert content["n_bytes"] == sum(part["n_bytes"] for part in content["parts"])
    assert {"kind", "owner", "n_files", "n_bytes"} == set(content["parts"][0])


@pytest.mark.soak("screens")
def test_models_that_several_pipelines_or_none_have_trained_are_told_apart(world: World) -> None:
    world.live_until_idle("a_pipeline_whose_name_is_as_long_as_the_name_of_a_pipeline_may_get")
    world.platform.model_store.save({"w": torch.ones(3)})
    owners = {part.owner: part.n_files for part in disk_usage(world.platform).parts if part.kind == "models"}
    assert owners["several pipelines"] == 2
    assert owners["no trigger"] == 1
    assert max(map(len, usage().stdout.splitlines()[1:])) <= 80


@pytest.mark.soak("screens")
def test_it_works_while_the_database_is_down(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODYN_POSTGRES_URL", "postgresql://nobody:secret@127.0.0.1:9/none")
    result = usage()
    assert result.exit_code == 0
    assert "run 1" in result.stdout
    assert "is unknown, and the databases are not divided: " in result.stderr
    assert "secret" not in result.stdout + result.stderr
