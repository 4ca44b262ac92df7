"""Postgres killed in the middle of a replay, and started again."""

from pathlib import Path

import pytest

from tests.conftest import RunningServer
from tests.integration.harness.deployment import deployed
from tests.integration.harness.fork_server import ForkServer
from tests.integration.harness.kill_points import points_of
from tests.integration.harness.kill_world import World
from tests.projects.tiny import amount, batch_text, drop

PIPELINE = "by_amount"


@pytest.mark.soak("kills-daemons")
def test_a_replay_whose_postgres_was_killed_says_so_and_started_again_ends_as_if_undisturbed(
    own_server: RunningServer, forks: ForkServer, tmp_path: Path
) -> None:
    with deployed(own_server, tmp_path, [amount(PIPELINE, every=60)]) as deployment:
        for day in range(3):
            drop(deployment.project, f"day_{day:02d}", batch_text(day))
        world = World(deployment, own_server, forks)
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
