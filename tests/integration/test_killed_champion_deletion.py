"""A deletion that takes a champion's model, killed around any of its commits and executed again, leaves the gate as undisturbed.

The gate moves in the transaction that takes the model's place: a kill before its commit is one between the two.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import pytest

from modyn_dagster.catalog.results.training_sets import find_training_set
from modyn_dagster.keys import KeyArray
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.operate.deletion.document import Selection, Way
from modyn_dagster.pipeline.operate.deletion.execute import begin_request
from modyn_dagster.pipeline.operate.deletion.plan import Wish, plan_request
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.promotion.actions import act
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set
from tests.conftest import RunningServer
from tests.integration.harness.deployment import Deployment, deployed
from tests.integration.harness.fork_server import ForkServer
from tests.integration.harness.kill_points import Point, points_of
from tests.integration.harness.kill_world import World
from tests.integration.test_killed_deletion_request import end_of
from tests.integration.test_killed_gate import PIPELINE, promoted
from tests.projects.tiny import DATASET, Content, amount, batch_text, drop

pytestmark = pytest.mark.soak("kills-ingestion")

#: Tests that decide nothing, so that the deletion finds them under way.
FIELDS: Final[Content] = {
    "promotion": {"metric": "accuracy", "min_samples": 10_000, "confidence": 0.999, "shadow": {"max": 5}},
    "live": "newest",
}
#: The champion and a candidate that is tested; the first champion has not seen the samples.
SAW: Final = (1, 2)


@dataclass(frozen=True)
class Undisturbed:
    """An installation with a stored request, the commits of its execution, and how that ended."""

    world: World
    request: int
    way: Way
    points: list[Point]
    ending: tuple[Any, ...]


def ending(world: World, request: int) -> tuple[Any, ...]:
    return promoted(world, "live"), *end_of(world, request, PIPELINE, "live")


def samples(platform: Platform, deployment: Deployment) -> KeyArray:
    """A sample of the training set of each model that is to have seen some."""
    keys = []
    for trigger in deployment.triggers(PIPELINE, "live"):
        with platform.transaction() as conn:
            row = find_training_set(conn, trigger.id)
        if row is not None and trigger.ordinal in SAW:
            keys.append(open_training_set(context_of(platform, PIPELINE, trigger.partition_key), row).keys()[:1])
    return np.concatenate(keys)


@pytest.fixture(scope="module", params=["roll_back", "retrain"])
def undisturbed(
    postgres_server: RunningServer, forks: ForkServer, tmp_path_factory: pytest.TempPathFactory, request: Any
) -> Iterator[Undisturbed]:
    way = cast("Way", request.param)
    folder = tmp_path_factory.mktemp(f"champion_{way}")
    with deployed(postgres_server, folder, [amount(PIPELINE, every=40, **FIELDS)]) as deployment:
        for day in range(4):
            drop(deployment.project, f"day_{day:02d}", batch_text(day))
        world = World(deployment, postgres_server, forks)
        world.prepare()
        for done in (world.import_history(), world.produce(PIPELINE)):
            assert done.error is None, done.error
        platform, run = deployment.platform, deployment.run(PIPELINE, "live")
        assert run is not None
        act(platform, run, "promote", SAW[0], "ann", "it is needed")
        dataset, keys = platform.view(DATASET).row, samples(platform, deployment)
        wish = Wish(Selection(by="keys", text="two samples"), "a person", ways={PIPELINE: way})
        stored = begin_request(platform, dataset, keys, plan_request(platform, dataset, keys, wish)).id
        with world.copied("whole") as whole:
            result = whole.delete(stored)
            assert result.error is None, result.error
            points = [point for point in points_of(result.passed) if point.kind == "commit"]
            yield Undisturbed(world, stored, way, points, ending(whole, stored))


def test_a_champion_s_deletion_killed_before_and_after_any_commit_and_executed_again_ends_as_if_undisturbed(
    undisturbed: Undisturbed,
) -> None:
    expected = undisturbed.ending[0]
    changes = [(event[1], event[3], event[4]) for event in expected.history if event[5] == "deletion"]
    if undisturbed.way == "roll_back":
        assert changes[:2] == [(SAW[0], "champion", "retired"), (0, "retired", "champion")]
    else:
        assert changes[0] == (SAW[0], "champion", "champion")
    assert len(undisturbed.points) > 10
    for number, point in enumerate(undisturbed.points):
        with undisturbed.world.copied(f"killed_{number}") as world:
            killed = world.delete(undisturbed.request, point)
            assert killed.exit_code == -9, f"{point}: {killed.error}"
            again = world.delete(undisturbed.request)
            assert again.error is None, f"{point}: {again.error}"
            for found, wanted in zip(ending(world, undisturbed.request), undisturbed.ending, strict=True):
                assert found == wanted, str(point)
