"""Postgres killed in the middle of a replay, and started again."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from modyn_dagster.catalog.runs import list_runs
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.pipeline.replay.run import ReplayRequest
from modyn_dagster.pipeline.replay.walk import replay
from tests.conftest import RunningServer
from tests.integration.harness.deployment import Deployment, deployed
from tests.integration.harness.fork_server import ForkServer
from tests.integration.harness.kill_points import points_of
from tests.integration.harness.kill_world import World
from tests.integration.harness.outcome import ending_of
from tests.projects.tiny import DATASET, amount, batch_text, drop

PIPELINE = "by_amount"


@pytest.mark.soak("kills-daemons")
def test_a_replay_whose_postgres_was_killed_says_so_and_started_again_ends_as_if_undisturbed(
    own_server: RunningServer, forks: ForkServer, tmp_path: Path
) -> None:
    with deployed(own_server, tmp_path, [amount(PIPELINE, every=60)]) as deployment:
        for day in range(3):
            drop(deployment.project, f"day_{day:02d}", batch_text(day))
        unwaiting = Deployment(replace(deployment.settings, max_wait=0))
        world = World(unwaiting, own_server, forks)
        world.prepare()
        assert world.import_history().error is None
        with world.copied("whole") as whole:
            commits = [point for point in points_of(whole.replay(PIPELINE).passed) if point.kind == "commit"]
            expected = whole.ending(PIPELINE)
        for number, share in enumerate((0.1, 0.4, 0.8)):
            with world.copied(f"p{number}") as copy:
                point = commits[int(share * len(commits))]
                result = copy.replay(PIPELINE, point, victim=own_server.embedded.status().pid)
                assert result.exit_code == 1, f"{point}: {result}"
                assert "does not answer" in str(result.error), f"{point}: {result.error}"
                assert "modyn-dagster db start" in str(result.error)
                assert own_server.embedded.start().started_by_us
                again = copy.replay(PIPELINE)
                assert again.error is None, f"{point}: {again.error}"
                assert copy.ending(PIPELINE) == expected, str(point)


def kill(server: RunningServer) -> None:
    """End Postgres as a power cut would, and wait until it is gone."""
    pid = server.embedded.status().pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while server.embedded.is_running():
        time.sleep(0.05)


@pytest.mark.soak("kills-replay")
def test_a_replay_waits_for_a_postgres_that_was_killed_and_ends_as_if_undisturbed(
    own_server: RunningServer, tmp_path: Path
) -> None:
    with deployed(own_server, tmp_path, [amount(PIPELINE, every=60)]) as deployment:
        import_days(deployment, 3)
        platform, keys, lines = deployment.platform, list(deployment.states()), list[str]()

        def start_again(line: str) -> None:
            lines.append(line)
            if len(lines) == 2:
                own_server.embedded.start()

        for event in replay(platform, ReplayRequest(PIPELINE, keys, "killed", name="killed"), waits=start_again):
            if getattr(event, "stage", "") == "model" and not lines:
                kill(own_server)
        killed = ending_of(platform, deployment.run(PIPELINE, "replay")).outcome
        assert len(lines) == 2
        assert "does not answer" in lines[0]
        assert {trigger.attempt for trigger in deployment.triggers(PIPELINE, "replay")} == {1}
        list(replay(platform, ReplayRequest(PIPELINE, keys, "undisturbed")))
        assert ending_of(platform, deployment.run(PIPELINE, "replay")).outcome == killed


def import_days(deployment: Deployment, days: int) -> None:
    for day in range(days):
        drop(deployment.project, f"day_{day:02d}", batch_text(day))
    platform = deployment.platform
    import_history(platform.engine, platform.home, platform.project.datasets[DATASET], platform.project.root_of(DATASET))


def started(deployment: Deployment, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", "from modyn_dagster.cli import main; main()", *arguments]
    environment = deployment.environment | {"MODYN_MLFLOW_URI": ""} | variables
    return subprocess.Popen(
        command, cwd=deployment.project, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def wait_for_model(deployment: Deployment) -> None:
    while not any(trigger.state == "trained" for trigger in deployment.triggers(PIPELINE, "replay")):
        time.sleep(0.05)


@pytest.mark.soak("kills-replay")
@pytest.mark.parametrize("round_", range(3))
def test_the_command_goes_on_with_a_replay_once_postgres_is_back(own_server: RunningServer, tmp_path: Path, round_: int) -> None:
    with deployed(own_server, tmp_path, [amount(PIPELINE, every=20)]) as deployment:
        import_days(deployment, 8)
        process = started(deployment, "pipeline", "replay", PIPELINE)
        wait_for_model(deployment)
        time.sleep(0.3 * round_)
        kill(own_server)
        time.sleep(2)
        assert own_server.embedded.start().started_by_us
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        killed = ending_of(deployment.platform, deployment.run(PIPELINE, "replay")).outcome
        assert deployment.command("pipeline", "replay", PIPELINE, "--name", "undisturbed").returncode == 0
        assert ending_of(deployment.platform, deployment.run(PIPELINE, "replay")).outcome == killed


@pytest.mark.soak("kills-replay")
def test_a_restart_goes_on_with_its_new_replay_once_postgres_is_back(own_server: RunningServer, tmp_path: Path) -> None:
    with deployed(own_server, tmp_path, [amount(PIPELINE, every=20)]) as deployment:
        import_days(deployment, 8)
        deployment.command("pipeline", "replay", PIPELINE)
        old = deployment.run(PIPELINE, "replay")
        process = started(deployment, "pipeline", "replay", PIPELINE, "--restart")
        while deployment.run(PIPELINE, "replay") == old:
            time.sleep(0.05)
        wait_for_model(deployment)
        kill(own_server)
        time.sleep(2)
        assert own_server.embedded.start().started_by_us
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        with deployment.platform.transaction() as conn:
            assert [run.state for run in list_runs(conn, PIPELINE)] == ["finished"] * 2


@pytest.mark.soak("kills-replay")
def test_a_postgres_that_does_not_come_back_is_one_sentence(own_server: RunningServer, tmp_path: Path) -> None:
    with deployed(own_server, tmp_path, [amount(PIPELINE, every=20)]) as deployment:
        import_days(deployment, 8)
        process = started(deployment, "pipeline", "replay", PIPELINE, MODYN_MAX_WAIT="2")
        wait_for_model(deployment)
        kill(own_server)
        _, errors = process.communicate(timeout=300)
        own_server.embedded.start()
        told = [line for line in errors.splitlines() if line.startswith("error: ")]
        assert process.returncode == 1
        assert len(told) == 1, errors
        assert "Traceback" not in errors
