"""Pipelines whose code is wrong: what they say, when they wait, and how they go on."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import dagster as dg
import pytest

from modyn_dagster.build import build_definitions
from modyn_dagster.catalog.results.training_sets import find_training_set
from modyn_dagster.cli.dagster_runs import ReplayOptions, replay_range
from modyn_dagster.errors import RunError
from modyn_dagster.keys import key_of
from tests.conftest import RunningServer
from tests.integration.harness.deployment import deployed
from tests.integration.harness.fork_server import ForkServer
from tests.integration.harness.kill_world import World
from tests.projects.tiny import DATASET, amount, batch_text, custom, drop, write_pipeline

pytestmark = pytest.mark.soak("production")

BROKEN: Final = "import a_module_that_nobody_has\n"
#: Address of no server.
NOWHERE: Final = "postgresql://nobody:secret@127.0.0.1:1/postgres"


@pytest.fixture(scope="module")
def world(postgres_server: RunningServer, forks: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Three batches of 40 samples; pipelines that fire at the last sample of each."""
    folder = tmp_path_factory.mktemp("bad")
    flag = str(folder / "flag")
    pipelines = [
        custom("too_wide", "tiny_models:too_wide", every=40),
        custom("not_a_number", "tiny_models:not_a_number", field="loss", every=40, max_attempts=2),
        custom("explodes", "tiny_models:linear", every=40, max_attempts=1),
        custom("goes_on", "tiny_models:refusing", field="loss", config={"flag": flag}, every=40, on_failure="continue"),
        custom("broken", "tiny_broken:linear", every=40),
    ]
    pipelines[2]["training"] |= {"optimizer": {"name": "sgd", "lr": 3e38, "momentum": 0.9}}
    with deployed(postgres_server, folder, [amount()]) as deployment:
        (deployment.code / "tiny_broken.py").write_text(BROKEN)
        for content in pipelines:
            write_pipeline(deployment.project, content)
        for day in range(3):
            drop(deployment.project, f"day_{day:02d}", batch_text(day))
        world = World(deployment, postgres_server, forks)
        world.prepare()
        imported = world.import_history()
        assert imported.error is None, imported.error
        yield world


def test_a_model_of_the_wrong_shape_fails_at_once_and_after_the_fix_the_run_is_resumed(world: World) -> None:
    error = str(world.replay("too_wide").error)
    assert "too_wide: trigger" in error
    assert "failed at attempt 1" in error
    assert "(16, 5), expected (16, 2)" in error
    assert "training.model" in error
    assert "modyn-dagster pipeline resume too_wide" in error
    [trigger] = world.deployment.triggers("too_wide", "replay")
    assert (trigger.state, trigger.attempt) == ("failed", 1)

    again = str(world.replay("too_wide").error)
    assert "modyn-dagster pipeline resume too_wide" in again
    [trigger] = world.deployment.triggers("too_wide", "replay")
    assert trigger.attempt == 1

    code = world.deployment.code / "tiny_models.py"
    bad = code.read_text()
    code.write_text(bad.replace("n_outputs + 3", "n_outputs"))
    try:
        resumed = world.deployment.command("pipeline", "resume", "too_wide")
        assert f"trigger {trigger.partition_key} will be trained again" in resumed.stdout
        assert world.replay("too_wide").error is None
    finally:
        code.write_text(bad)
    assert [row.state for row in world.deployment.triggers("too_wide", "replay")] == ["trained"] * 3
    assert world.ending("too_wide").outcome.state == "finished"


@pytest.mark.parametrize("pipeline", ["not_a_number", "explodes"])
def test_a_loss_that_is_no_number_names_pipeline_step_and_keys(world: World, pipeline: str) -> None:
    error = str(world.replay(pipeline).error)
    assert f"{pipeline}: trigger" in error
    assert "the loss is" in error
    assert "at step" in error
    assert "lower the learning rate or check the data" in error
    assert world.ending(pipeline).outcome.state == "waiting"
    assert world.ending(pipeline).outcome.models == {}


def test_with_continue_the_previous_model_stays_and_its_samples_belong_to_the_next_trigger(world: World) -> None:
    flag = world.settings.home.parent / "flag"
    assert world.replay("goes_on", until="day_00").error is None
    flag.touch()
    assert world.replay("goes_on", until="day_01").error is None
    flag.unlink()
    assert world.replay("goes_on").error is None
    triggers = world.deployment.triggers("goes_on", "replay")
    assert [(row.state, row.attempt) for row in triggers] == [("trained", 1), ("failed", 1), ("trained", 1)]
    assert "the flag is up" in str(triggers[1].error)
    with world.deployment.platform.transaction() as conn:
        last = find_training_set(conn, triggers[2].id)
    assert last is not None
    assert (last.after, last.until, last.n_samples) == (key_of(0, 39), key_of(2, 39), 80)


def test_code_that_cannot_be_imported_is_refused_by_check_and_before_any_run_starts(world: World) -> None:
    checked = world.deployment.command("check", check=False)
    assert checked.returncode == 1
    for text in (checked.stderr, str(world.replay("broken").error)):
        for part in ("pipeline broken", "training.model.factory", "tiny_broken:linear", "a_module_that_nobody_has"):
            assert part in text
    assert world.deployment.run("broken", "replay") is None


def test_definitions_load_without_postgres_and_sensors_and_assets_say_what_is_down(world: World) -> None:
    dead = replace(world.settings, postgres_url="postgresql://nobody:secret@127.0.0.1:1/postgres")
    defs = build_definitions(settings=dead)
    says = "Postgres at nobody@127.0.0.1:1/"
    with dg.DagsterInstance.ephemeral() as instance:
        for sensor in (f"new_data__{DATASET}", "triggering__by_amount"):
            with dg.build_sensor_context(instance=instance, definitions=defs, resources=defs.resources) as context:
                message = str(defs.resolve_sensor_def(sensor).evaluate_tick(context).skip_message)
            assert says in message
            assert "modyn-dagster db start" in message
        instance.add_dynamic_partitions(f"batches/{DATASET}", ["day_00"])
        with pytest.raises(RunError) as refused:
            replay_range(defs, instance, "by_amount", ("day_00", "day_00"), ReplayOptions())
        [run] = instance.get_runs()
    # What Dagster's list of runs shows of it: the asset, not a job without a name of its own.
    assert (run.job_name, run.asset_selection) == ("__ASSET_JOB", {dg.AssetKey(["by_amount", "replay"])})
    assert says in str(refused.value)
    assert "modyn-dagster db start" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_command_without_its_server_says_so_in_one_sentence(world: World, tmp_path: Path) -> None:
    environment = world.deployment.environment | {"MODYN_HOME": str(tmp_path / "home"), "MODYN_POSTGRES_URL": NOWHERE}
    for arguments in (["pipeline", "status"], ["pipeline", "replay", "too_wide"], ["dataset", "status"], ["db", "upgrade"]):
        result = world.deployment.command(*arguments, check=False, environment=environment)
        assert result.returncode == 1, arguments
        assert result.stdout == ""
        [line] = result.stderr.splitlines()
        assert line.startswith("error: Postgres at nobody@127.0.0.1:1/"), arguments
        assert "secret" not in line
