"""A replay killed at any of its steps and started again ends as one that nobody disturbed."""

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
from tests.projects.tiny import batch_text, drop, timed

PIPELINE: Final = "by_time"
#: The matrix is cut into this many tests.
CHUNKS: Final = 8
#: Kill points of `make test`, spread over the steps of the replay; `make soak` has all of them.
FEW: Final = 3
SPLIT: Final = {"train": 0.8, "calibrate": 0.05, "evaluate": 0.15}


@dataclass(frozen=True)
class Undisturbed:
    """An installation before its replay, the steps of that replay, and how it ended."""

    world: World
    points: list[Point]
    ending: Ending


def assert_dagster_shows_everything(world: World) -> None:
    assets = ("replay", "training_set", "model", "evaluation")
    batches, *made = world.materialized(*([PIPELINE, asset] for asset in assets))
    assert batches == set(world.deployment.states())
    triggers = {trigger.partition_key for trigger in world.deployment.triggers(PIPELINE, "replay")}
    assert made == [triggers] * 3


@pytest.fixture(scope="module")
def undisturbed(
    postgres_server: RunningServer, forks: ForkServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Undisturbed]:
    folder = tmp_path_factory.mktemp("killed")
    with deployed(postgres_server, folder, [timed(PIPELINE, every="1d")], split=SPLIT) as deployment:
        for day in range(3):
            drop(deployment.project, f"day_{day:02d}", batch_text(day))
        world = World(deployment, postgres_server, forks)
        world.prepare()
        imported = world.import_history()
        assert imported.error is None, imported.error
        with world.copied("whole") as whole:
            result = whole.replay(PIPELINE)
            assert result.error is None, result.error
            assert_dagster_shows_everything(whole)
            yield Undisturbed(world, points_of(result.passed), whole.ending(PIPELINE))


def test_an_undisturbed_replay_has_triggers_models_and_evaluations(undisturbed: Undisturbed) -> None:
    outcome = undisturbed.ending.outcome
    assert outcome.state == "finished"
    assert len(outcome.triggers) == len(outcome.models) == len(outcome.training_sets) >= 2
    assert {cell[0] for cell in outcome.evaluations} == set(outcome.models)
    # Begin, and per trigger: decide, claim, training set, model, predictions, scores; each with a commit, three with a file.
    assert len({point.number for point in undisturbed.points if point.kind == "commit"}) > 6 * len(outcome.triggers)
    assert len({point.number for point in undisturbed.points if point.kind == "rename"}) >= 3 * len(outcome.triggers)


def kill_and_start_again(undisturbed: Undisturbed, points: Sequence[Point], name: str) -> None:
    reached = 0
    for number, point in enumerate(points):
        with undisturbed.world.copied(f"{name}_{number}") as world:
            killed = world.replay(PIPELINE, point)
            # The place in the stream is recorded by the clock, so a replay may have fewer commits than the undisturbed one had.
            came_there = killed.exit_code == -9
            assert came_there or (killed.exit_code == 0 and point.kind == "commit"), f"{point}: {killed.error}"
            reached += came_there
            again = world.replay(PIPELINE)
            assert again.error is None, f"{point}: {again.error}"
            assert world.ending(PIPELINE) == undisturbed.ending, str(point)
            assert_dagster_shows_everything(world)
    assert 2 * reached > len(points)


def test_a_replay_killed_at_a_few_steps_and_started_again_ends_as_if_undisturbed(undisturbed: Undisturbed) -> None:
    points = undisturbed.points
    kill_and_start_again(undisturbed, [points[number * (len(points) - 1) // (FEW - 1)] for number in range(FEW)], "few")


@pytest.mark.soak("kills-replay")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_killed_replay_started_again_ends_as_if_undisturbed(undisturbed: Undisturbed, chunk: int) -> None:
    kill_and_start_again(undisturbed, undisturbed.points[chunk::CHUNKS], f"k{chunk}")


@pytest.mark.soak("kills-replay")
def test_a_replay_killed_again_and_again_ends_as_if_undisturbed(undisturbed: Undisturbed) -> None:
    """Every start comes five transactions further: just enough to begin, to take a trigger over and to train it."""
    with undisturbed.world.copied("again") as world:
        codes: list[int] = []
        while not codes or (codes[-1] != 0 and len(codes) < len(undisturbed.points)):
            result = world.replay(PIPELINE, Point("commit", 5, "before"))
            assert result.error is None, result.error
            codes.append(result.exit_code)
        assert len(codes) > len(undisturbed.ending.outcome.triggers)
        assert set(codes[:-1]) == {-9}
        assert codes[-1] == 0
        assert world.ending(PIPELINE) == undisturbed.ending
        assert_dagster_shows_everything(world)
