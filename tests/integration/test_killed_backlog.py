"""A run that trains a backlog, killed at any of its steps: production afterwards ends as if nothing had happened."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pytest

from tests.conftest import RunningServer
from tests.integration.harness.deployment import deployed
from tests.integration.harness.fork_server import ForkServer
from tests.integration.harness.kill_points import Point, points_of
from tests.integration.harness.kill_world import World
from tests.integration.harness.outcome import Ending
from tests.projects.tiny import amount, batch_text, drop

PIPELINE: Final = "by_amount"
ASSETS: Final = ("training_set", "model", "evaluation")
#: The matrix is cut into this many tests.
CHUNKS: Final = 8
#: Kill points of `make test`, in the triggers that are taken from the backlog; `make soak` has all of them.


@dataclass(frozen=True)
class Undisturbed:
    """An installation with three triggers waiting, the steps of the process that trains them, and how it ended."""

    world: World
    points: list[Point]
    ending: Ending


@pytest.fixture(scope="module")
def undisturbed(
    postgres_server: RunningServer, forks: ForkServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Undisturbed]:
    folder = tmp_path_factory.mktemp("backlog")
    with deployed(postgres_server, folder, [amount(PIPELINE, every=40)]) as deployment:
        for day in range(3):
            drop(deployment.project, f"day_{day:02d}", batch_text(day))
        world = World(deployment, postgres_server, forks)
        world.prepare()
        imported = world.import_history()
        assert imported.error is None, imported.error
        with world.copied("whole") as whole:
            result = whole.produce(PIPELINE)
            assert result.error is None, result.error
            assert_shown(whole)
            triggers = whole.deployment.triggers(PIPELINE, "live")
            assert [trigger.state for trigger in triggers] == ["trained"] * 3
            assert len({trigger.dagster_run_id for trigger in triggers}) == 1
            yield Undisturbed(world, points_of(result.passed), whole.ending(PIPELINE, "live"))


def assert_shown(world: World) -> None:
    triggers = {trigger.partition_key for trigger in world.deployment.triggers(PIPELINE, "live")}
    assert world.materialized(*([PIPELINE, asset] for asset in ASSETS)) == [triggers] * 3


def kill_and_go_on(undisturbed: Undisturbed, points: Sequence[Point], name: str) -> None:
    for number, point in enumerate(points):
        with undisturbed.world.copied(f"{name}_{number}") as world:
            killed = world.produce(PIPELINE, point)
            assert killed.exit_code == -9, f"{point}: {killed.error}"
            again = world.produce(PIPELINE)
            assert again.error is None, f"{point}: {again.error}"
            assert world.ending(PIPELINE, "live") == undisturbed.ending, str(point)
            assert_shown(world)


@pytest.mark.soak("kills-replay")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_production_killed_anywhere_ends_as_if_undisturbed(undisturbed: Undisturbed, chunk: int) -> None:
    kill_and_go_on(undisturbed, undisturbed.points[chunk::CHUNKS], f"k{chunk}")
