"""Two processes that move one gate at the same moment: one of them does, and nothing is recorded twice."""

from threading import Barrier, Thread

import pytest

from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.errors import StaleRun
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.promotion.gate_walk import GateWalk, advance_live
from tests.pipeline.promotion.test_live_is_replay import gate, history, promoting
from tests.pipeline.world import World
from tests.projects.tiny import amount

DAYS = 5


def before_its_looks(world: World) -> RunRow:
    """A live run whose models are trained, and whose gate has looked at nothing."""
    world.deliver(range(DAYS))
    while (now := world.tick("p")).train is not None:
        world.train("p", now.train)
    assert gate(world, now.run) == (-1, {})
    return now.run


def test_a_process_that_another_one_was_ahead_of_records_nothing(world_of) -> None:
    world = world_of(promoting(amount("p", every=60)) | {"live": "newest"})
    run = before_its_looks(world)
    view = world.platform.view_of(run)
    slow = GateWalk(world.platform, run)
    # It reads the gate, and waits.
    slow.advance(run, view, -1)
    advance_live(world.platform, run)
    done, state = history(world, run), gate(world, run)
    assert len(done) > 2
    with pytest.raises(StaleRun):
        slow.advance(run, view, DAYS - 1)
    assert (history(world, run), gate(world, run)) == (done, state)
    # Nor does one that reads it afterwards find anything to do.
    advance_live(world.platform, run)
    assert (history(world, run), gate(world, run)) == (done, state)


def test_of_processes_that_begin_together_one_moves_the_gate_at_a_time(world_of) -> None:
    world = world_of(promoting(amount("p", every=60)) | {"live": "newest"})
    run = before_its_looks(world)
    start, errors = Barrier(3), []

    def advanced(platform: Platform) -> None:
        start.wait()
        try:
            advance_live(platform, run)
        except BaseException as error:  # noqa: BLE001 - a thread's error would be lost
            errors.append(error)

    platforms = [Platform.open(world.settings) for _ in range(3)]
    threads = [Thread(target=advanced, args=[each]) for each in platforms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in platforms:
        each.close()
    assert not errors
    events = history(world, run)
    assert [event[0] for event in events] == list(range(len(events)))
    assert gate(world, run)[0] == DAYS - 1
    world.replay("p")
    assert history(world, world.run("p", "replay")) == events
