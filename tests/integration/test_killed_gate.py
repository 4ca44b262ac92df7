"""A replay and a live run whose gate is killed before and after its commits, and started again, promote as if undisturbed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from modyn_dagster.catalog.results.promotions import gate_of, list_promotions
from modyn_dagster.catalog.runs import Mode
from tests.conftest import RunningServer
from tests.integration.harness.deployment import deployed
from tests.integration.harness.fork_server import ForkServer, Result
from tests.integration.harness.kill_points import Point, points_of
from tests.integration.harness.kill_world import World
from tests.integration.harness.outcome import Outcome, outcome_of
from tests.projects.tiny import Content, amount, batch_text, drop

pytestmark = pytest.mark.soak("kills-replay")

PIPELINE: Final = "by_amount"
DAYS: Final = 6
#: Models see one day each, and the line between the classes turns: a newer one is soon better.
FIELDS: Final[Content] = {
    "promotion": {"metric": "accuracy", "min_samples": 10, "confidence": 0.5, "shadow": {"max": 2}},
    "selection": {"window": {"last_triggers": 1}},
}


@dataclass(frozen=True)
class Promoted:
    """History and gate of a run, the hash of its champion, and everything else that it came to."""

    history: list[tuple[Any, ...]]
    gate: tuple[int, Any]
    champion: str | None
    outcome: Outcome


@dataclass(frozen=True)
class Undisturbed:
    """An installation before its run, the commits of the run's gate, and how it ended."""

    world: World
    points: list[Point]
    ending: Promoted


def go(world: World, mode: Mode, point: Point | None = None) -> Result:
    return world.replay(PIPELINE, point) if mode == "replay" else world.produce(PIPELINE, point)


def promoted(world: World, mode: Mode) -> Promoted:
    platform, run = world.deployment.platform, world.deployment.run(PIPELINE, mode)
    assert run is not None
    with platform.transaction() as conn:
        events, gate = list_promotions(conn, run.id), gate_of(conn, run.id)
    history = [
        (e.number, e.ordinal, e.model_hash, e.before, e.state, e.actor, e.reason, e.batch, e.time, e.verdict, e.manual)
        for e in events
    ]
    return Promoted(history, (gate.batch, gate.state), run.champion_model, outcome_of(platform, run))


@pytest.fixture(scope="module")
def imported(postgres_server: RunningServer, forks: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with deployed(postgres_server, tmp_path_factory.mktemp("gates"), [amount(PIPELINE, every=40, **FIELDS)]) as deployment:
        for day in range(DAYS):
            drop(deployment.project, f"day_{day:02d}", batch_text(day))
        world = World(deployment, postgres_server, forks)
        world.prepare()
        done = world.import_history()
        assert done.error is None, done.error
        yield replace(world, table="promotion_gate")


@pytest.fixture(scope="module", params=["replay", "live"])
def undisturbed(imported: World, request: pytest.FixtureRequest) -> tuple[Mode, Undisturbed]:
    mode: Mode = request.param
    with imported.copied(f"whole_{mode}") as whole:
        result = go(whole, mode)
        assert result.error is None, result.error
        points = [point for point in points_of(result.passed) if point.kind == "commit"]
        return mode, Undisturbed(imported, points, promoted(whole, mode))


def kill_and_start_again(mode: Mode, undisturbed: Undisturbed, points: Sequence[Point]) -> None:
    reached = 0
    for number, point in enumerate(points):
        with undisturbed.world.copied(f"killed_{mode}_{number}") as world:
            killed = go(world, mode, point)
            # Looks that change nothing are recorded by the clock, so a gate may have fewer commits than the undisturbed one.
            assert killed.exit_code in (-9, 0), f"{point}: {killed.error}"
            reached += killed.exit_code == -9
            again = go(world, mode)
            assert again.error is None, f"{point}: {again.error}"
            assert promoted(world, mode) == undisturbed.ending, str(point)
    assert 2 * reached > len(points)


def test_a_gate_that_is_killed_before_and_after_any_commit_and_started_again_ends_as_if_undisturbed(undisturbed) -> None:
    mode, whole = undisturbed
    assert [event[4] for event in whole.ending.history].count("champion") > 1
    assert len(whole.points) > 8
    kill_and_start_again(mode, whole, whole.points)


def test_a_gate_that_is_killed_at_its_second_commit_again_and_again_ends_as_if_undisturbed(undisturbed) -> None:
    mode, whole = undisturbed
    with whole.world.copied(f"again_{mode}") as world:
        codes = [-9]
        while codes[-1] != 0 and len(codes) < len(whole.points):
            result = go(world, mode, Point("commit", 1, "before"))
            assert result.error is None, result.error
            codes.append(result.exit_code)
        assert codes[-1] == 0
        assert codes.count(-9) > 2
        assert promoted(world, mode) == whole.ending
