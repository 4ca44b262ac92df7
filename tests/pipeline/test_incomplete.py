"""A replay that went on without the models of failed triggers does not end like one that has them all."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from modyn_dagster.assets.metadata.decisions import replay_metadata
from modyn_dagster.catalog.database.urls import child_environment
from modyn_dagster.cli import main
from modyn_dagster.cli.pipeline.replay import require_models
from modyn_dagster.errors import ModelsMissing
from modyn_dagster.pipeline.replay.walk import BatchReplayed
from tests.pipeline.world import World
from tests.projects.tiny import custom

PIPELINE = "goes_on"


def test_failed_triggers_show_in_the_state_in_dagster_and_in_the_exit_code(
    world_of: Callable[..., World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = tmp_path / "flag"
    content = custom(PIPELINE, "tiny_models:refusing", field="loss", config={"flag": str(flag)}, every=40)
    content |= {"on_failure": "continue", "max_attempts": 1}
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "projects" / "user_code"))
    world = world_of(content)
    world.deliver(range(2))
    walked = world.replay(PIPELINE)
    run = world.run(PIPELINE, "replay")
    with world.platform.transaction() as conn:
        require_models(conn, run)
    flag.touch()
    world.deliver(range(2, 4))
    walked = [event for event in world.replay(PIPELINE) if isinstance(event, BatchReplayed)]
    assert [event.failed for event in walked] == [0, 0, 1, 2]
    assert "failed triggers so far" not in replay_metadata(walked[1], None)
    assert replay_metadata(walked[3], None)["failed triggers so far"] == 2
    with pytest.raises(ModelsMissing, match=r"2 of 4 triggers failed .*the flag is up"), world.platform.transaction() as conn:
        require_models(conn, run)
    environment = child_environment(world.platform.settings)
    status = CliRunner().invoke(main, ["pipeline", "status", PIPELINE, "--json"], env=environment)
    [row] = json.loads(status.stdout)
    assert (row["state"], row["triggers"], row["failed_triggers"]) == ("finished", 4, 2)
    shown = CliRunner().invoke(main, ["pipeline", "status", PIPELINE], env=environment | {"COLUMNS": "200"})
    assert "finished, 2 failed" in shown.stdout
    compared = CliRunner().invoke(main, ["pipeline", "compare", PIPELINE], env=environment | {"COLUMNS": "200"})
    assert "2 (2 failed)" in compared.stdout
