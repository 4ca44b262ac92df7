"""``modyn-dagster init`` to its end: what it makes is ingested and replayed at once."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.cli import main
from modyn_dagster.cli.init.command import STREAMS
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.settings import Settings
from tests.pipeline.world import World
from tests.project.tutorials import run_in_shell

#: Rows of a day of the user's data.
ROWS = 12


@pytest.fixture
def new(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[World, str]]]:
    """Make a project by the command, and drive it without Dagster; its modules leave the search path afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def made(name: str, *options: str) -> tuple[World, str]:
        result = CliRunner().invoke(main, ["init", name, *options])
        assert result.exit_code == 0, result.stderr
        return World(tmp_path / name, replace(settings, project=tmp_path / name)), result.stdout

    yield made
    sys.modules.pop("shop_model", None)


def cut_of(output: str) -> str:
    """Batches as the command that is told says."""
    [command] = [line for line in output.splitlines() if " dataset import " in line]
    return command.partition("--by ")[2] or "file"


def imported(world: World, name: str, by: str) -> int:
    platform = world.platform
    root = platform.project.root_of(name)
    summary = import_history(platform.engine, platform.home, platform.project.datasets[name], root, by=by)
    assert summary.failed == []
    return len(world.platform.view(name).batches)


def n_models(world: World, pipeline: str) -> int:
    dataset = world.platform.project.pipelines[pipeline].dataset
    world.replay(pipeline, [batch.partition_key for batch in world.platform.view(dataset).batches])
    run = world.run(pipeline, "replay")
    with world.platform.transaction() as conn:
        return len(list_models(conn, run.id))


def test_a_file_of_a_user_is_cut_by_time_and_replayed(new: Callable[..., tuple[World, str]]) -> None:
    days = [f"2024-01-{1 + i:02d}" for i in range(20)]
    rows = [f"{day},{i % 5},{(i + j) % 2}" for j, day in enumerate(days) for i in range(ROWS)]
    Path("data.csv").write_text("\n".join(['day,it\'s: "x",label', *rows]).replace('it\'s: "x"', '"it\'s: ""x"""') + "\n")
    world, output = new("shop", "--from", "data.csv")
    with closing(world):
        assert imported(world, "shop", cut_of(output)) == 20
        assert n_models(world, "by_amount") == 5


@pytest.mark.soak("screens")
@pytest.mark.parametrize("template", STREAMS)
def test_a_stream_of_a_template_is_replayed(template: str, new: Callable[..., tuple[World, str]]) -> None:
    world, output = new(f"of_{template}", "--template", template)
    with closing(world):
        assert imported(world, f"of_{template}", cut_of(output)) >= 42
        assert n_models(world, "by_amount") >= 4
        # The same model on all samples so far, which takes longest.
        assert template != "tabular" or n_models(world, "by_time") >= 2


@pytest.mark.soak("screens")
def test_the_commands_that_are_told_run_as_they_stand(scratch: Path) -> None:
    (scratch / "data.csv").write_text("time,x,label\n" + "".join(f"2024-01-{1 + i % 28:02d},{i},{i % 2}\n" for i in range(280)))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "PYTHONPATH": str(Path(__file__).parents[2])}
    make = [f"cd {scratch}", "modyn-dagster init shop --from data.csv --no-input"]
    ran = run_in_shell(make, environment, scratch / "log")
    told = [line.strip() for line in ran[-1][1].partition("next:\n")[2].splitlines()]
    assert [command.partition("#")[0].strip() for command in told][-1] == "modyn-dagster up"
    commands = [f"cd {scratch}", *told[:-1], "make check test", "modyn-dagster db stop"]
    for command, (code, output) in zip(commands, run_in_shell(commands, environment, scratch / "log"), strict=True):
        assert code == 0, (command, output)
