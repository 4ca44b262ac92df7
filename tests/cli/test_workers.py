"""``modyn-dagster pipeline replay --workers``."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modyn_dagster.catalog.database.urls import child_environment
from modyn_dagster.cli import main
from modyn_dagster.settings import Settings
from tests.pipeline.same_end import Ended, end_of, forget_evaluations
from tests.pipeline.world import World, make_world
from tests.projects.tiny import amount


@pytest.fixture
def world(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Four batches and a pipeline, before its first replay; without MLflow."""
    made = make_world(settings, tmp_path / "project", [amount(every=30)], split={"train": 0.7, "evaluate": 0.3})
    dagster_home = tmp_path / "dagster"
    dagster_home.mkdir()
    (dagster_home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    environment = child_environment(made.settings) | {"DAGSTER_HOME": str(dagster_home)}
    for name, value in (made.settings.environment() | environment).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MODYN_MLFLOW_URI", raising=False)
    made.deliver(range(4))
    yield made
    made.close()


def replay(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["pipeline", "replay", "by_amount", *arguments], catch_exceptions=False)


@pytest.mark.process
@pytest.mark.parametrize("workers", ["0", "-2", "many", "ray:", ""])
def test_a_number_of_workers_that_is_none_is_refused_before_anything_starts(world: World, workers: str) -> None:
    refused = replay("--workers", workers)
    assert refused.exit_code == 1
    assert "MODYN_WORKERS" in refused.stderr
    assert "must be a number of processes above 0" in refused.stderr


@pytest.mark.process
@pytest.mark.soak("distributed")
def test_option_and_variable_give_a_replay_workers_and_the_same_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[Ended] = []
    for name, arguments in (("alone", ()), ("option", ("--workers", "2")), ("variable", ())):
        if name == "variable":
            monkeypatch.setenv("MODYN_WORKERS", "processes:1")
        done = replay("--name", name, *arguments)
        assert done.exit_code == 0, done.stderr
        ends.append(end_of(world, world.run_named("by_amount", name)))
        forget_evaluations(world)
    assert ends[0].outcome["models"]
    assert ends[1] == ends[2] == ends[0]
