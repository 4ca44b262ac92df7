"""A start that is killed before or after its one commit, or between two files, and two starts at once."""

import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.database.mapping import metadata
from modyn_dagster.catalog.runs import list_runs
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.replay.start_live import start_live
from modyn_dagster.settings import Settings
from tests.integration.harness.kill_points import Point, Watch
from tests.pipeline.start.comparing import facts, files_of
from tests.pipeline.world import World
from tests.projects.tiny import amount

Worlds = Callable[..., World]


def rows(world: World) -> dict[str, int]:
    """Number of rows by table."""
    with world.platform.transaction() as conn:
        counts = {table.name: sa.select(sa.func.count()).select_from(table) for table in metadata.sorted_tables}
        return {name: int(conn.execute(count).scalar_one()) for name, count in counts.items()}


def replayed(world: World) -> World:
    world.deliver(range(3))
    world.replay("by_amount")
    return world


def _start_until(settings: Settings, database: str, point: Point) -> None:
    platform = Platform.open(settings)
    Watch(database, settings.home, point).install()
    start_live(platform, "by_amount", 1)


@pytest.mark.process
@pytest.mark.parametrize(
    ("point", "begun"),
    [
        pytest.param(Point("rename", 2, "before"), False, marks=pytest.mark.soak("kills-replay")),
        pytest.param(Point("commit", 0, "before"), False, marks=pytest.mark.soak("kills-replay")),
        (Point("commit", 0, "after"), True),
    ],
    ids=str,
)
def test_a_kill_leaves_no_live_run_or_the_whole_one_and_another_call_ends_the_same(
    world_of: Worlds, point: Point, begun: bool
) -> None:
    world = replayed(world_of(amount(every=35)))
    before = rows(world)
    with world.platform.transaction() as conn:
        database = str(conn.execute(sa.text("select current_database()")).scalar_one())
    # A fork would share the connections of this process.
    killed = multiprocessing.get_context("spawn").Process(target=_start_until, args=(world.settings, database, point))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert (rows(world) != before) is begun
    again = start_live(world.platform, "by_amount", 1)
    assert again.anew is not begun
    replay, live = world.run("by_amount", "replay"), again.run
    assert facts(world, live)["models"] == facts(world, replay)["models"]
    home, pairs = world.platform.home, zip_files(world, replay.id, live.id)
    assert all((home / theirs).samefile(home / ours) for theirs, ours in pairs)


def zip_files(world: World, *run_ids: int) -> list[tuple[str, ...]]:
    """Paths of the same files of some runs."""
    paths = [files_of(world, world.reread(run_id)) for run_id in run_ids]
    assert paths[0]
    return list(zip(*paths, strict=True))


def test_of_two_starts_at_once_one_begins_the_run_and_the_other_finds_it(world_of: Worlds) -> None:
    world = replayed(world_of(amount(every=35)))
    with ThreadPoolExecutor(4) as pool:
        started = list(pool.map(lambda _: start_live(world.platform, "by_amount", 1), range(4)))
    assert sum(each.anew for each in started) == 1
    with world.platform.transaction() as conn:
        assert [run.mode for run in list_runs(conn)] == ["replay", "live"]
    assert len({each.run.id for each in started}) == 1
