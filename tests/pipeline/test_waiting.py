"""Transient errors of a replay: real ones are waited out, and the end is that of an undisturbed run."""

import errno
import multiprocessing
import os
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from modyn_dagster.catalog.database.urls import database_url
from modyn_dagster.errors import StillFailing
from modyn_dagster.pipeline.decide.waiting import Patience, patient_events, patiently
from modyn_dagster.pipeline.replay.run import ReplayRequest
from modyn_dagster.pipeline.replay.walk import replay
from tests.conftest import RunningServer
from tests.pipeline.world import World
from tests.projects.tiny import timed

PIPELINE = "by_time"
FULL = OSError(errno.ENOSPC, "no space left on device")


class Sleeper:
    """A clock that only sleeping moves on."""

    def __init__(self) -> None:
        self.now, self.pauses = 0.0, list[float]()

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def close_folder(folder: Path) -> None:
    """Let nobody write into a folder, not even root."""
    folder.mkdir(exist_ok=True, parents=True)
    folder.chmod(0o555)
    if os.geteuid() == 0 and subprocess.run(["chattr", "+i", folder], capture_output=True, check=False).returncode:
        pytest.skip("this file system has no immutable folders, and root may write into others")


def open_folder(folder: Path) -> None:
    if os.geteuid() == 0:
        subprocess.run(["chattr", "-i", folder], check=True)
    folder.chmod(0o755)


def walk(world: World, waits: Callable[[str], object] | None = None, **options: Any) -> list[Any]:
    return list(replay(world.platform, ReplayRequest(PIPELINE, world.keys(), "dagster-run", **options), waits=waits))


@pytest.fixture
def world(world_of: Callable[..., World]) -> World:
    made = world_of(timed(PIPELINE, every="2d", on_failure="continue"))
    made.deliver(range(6))
    return made


@pytest.mark.soak("replays")
@pytest.mark.parametrize("folder", ["training_sets", "models", "predictions"])
def test_a_replay_waits_while_a_folder_is_read_only_and_ends_as_if_undisturbed(world: World, folder: str) -> None:
    place, lines, seen = world.platform.home / folder, list[str](), list[tuple[Any, ...]]()
    close_folder(place)

    def heal(line: str) -> None:
        lines.append(line)
        trigger = world.triggers(world.run(PIPELINE, "replay").id)[-1]
        seen.append((trigger.state, trigger.attempt, trigger.error))
        if len(lines) == 2:
            open_folder(place)

    try:
        walk(world, heal, name="disturbed")
    finally:
        open_folder(place)
    walk(world, name="undisturbed")
    run = world.run_named(PIPELINE, "disturbed")
    assert world.outcome(run) == world.outcome(world.run_named(PIPELINE, "undisturbed"))
    assert [trigger.attempt for trigger in world.triggers(run.id)] == [1] * 2
    assert [trigger.error for trigger in world.triggers(run.id)] == [None] * 2
    # People see the wait in the catalog too: what for, since when and until when.
    assert lines[0].startswith("waits since ")
    assert str(place) in lines[0]
    trained = folder == "predictions"
    assert [row[:2] for row in seen] == [("trained" if trained else "pending", 1)] * 2
    # The end of the wait may move by a second.
    assert all(error is None if trained else error in lines for *_, error in seen)


def test_an_error_that_does_not_pass_in_time_ends_the_replay_and_loses_no_attempt(world: World) -> None:
    world.platform = replace(world.platform, settings=replace(world.settings, max_wait=0))
    place = world.platform.home / "training_sets"
    close_folder(place)
    try:
        for _ in range(4):
            with pytest.raises(StillFailing, match=r"training_sets.*after 0 s of waiting"):
                walk(world)
    finally:
        open_folder(place)
    run = world.run(PIPELINE, "replay")
    assert [(trigger.state, trigger.attempt) for trigger in world.triggers(run.id)] == [("pending", 1)]
    walk(world)
    assert [(trigger.state, trigger.attempt) for trigger in world.triggers(run.id)] == [("trained", 1)] * 2


@pytest.mark.soak("replays")
def test_a_replay_waits_for_a_postgres_that_only_reads_for_a_while(world: World, postgres_server: RunningServer) -> None:
    database = database_url(world.settings, "modyn").database
    lines = list[str]()

    def allow_writing(allowed: bool) -> None:
        postgres_server.execute(f'ALTER DATABASE "{database}" SET default_transaction_read_only = {"off" if allowed else "on"}')
        # Connections begin with the setting of their time.
        world.platform.engine.dispose()

    def forbid_once(_: object) -> None:
        if not lines:
            allow_writing(False)

    def heal(line: str) -> None:
        lines.append(line)
        allow_writing(True)

    request = ReplayRequest(PIPELINE, world.keys(), "dagster-run", name="disturbed")
    list(replay(world.platform, request, training=forbid_once, waits=heal))
    assert len(lines) == 1
    assert "read-only" in lines[0]
    walk(world, name="undisturbed")
    run = world.run_named(PIPELINE, "disturbed")
    assert world.outcome(run) == world.outcome(world.run_named(PIPELINE, "undisturbed"))
    assert [trigger.attempt for trigger in world.triggers(run.id)] == [1] * 2


@pytest.mark.process
def test_a_replay_killed_in_a_wait_and_started_again_ends_as_if_undisturbed(world: World) -> None:
    walk(world, name="undisturbed")
    place = world.platform.home / "training_sets"
    keys, says = world.keys(), multiprocessing.get_context("fork").Event()
    world.close()
    close_folder(place)

    def wait_for_ever() -> None:
        world.reload()
        request = ReplayRequest(PIPELINE, keys, "killed", name="killed")
        list(replay(world.platform, request, waits=lambda _: says.set()))

    process = multiprocessing.get_context("fork").Process(target=wait_for_ever)
    try:
        process.start()
        assert says.wait(60)
        os.kill(int(process.pid or 0), signal.SIGKILL)
        process.join()
    finally:
        open_folder(place)
    world.reload()
    walk(world, name="killed")
    run = world.run_named(PIPELINE, "killed")
    assert world.outcome(run) == world.outcome(world.run_named(PIPELINE, "undisturbed"))
    assert [trigger.attempt for trigger in world.triggers(run.id)] == [1] * 2


def test_pauses_grow_and_progress_begins_another_wait() -> None:
    time, lines = Sleeper(), list[str]()
    patience = Patience(92, lines.append, clock=time.clock, sleep=time.sleep)
    for _ in range(9):
        patience.pause(FULL)
    assert time.pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 0.5]
    assert len(lines) == 9
    with pytest.raises(StillFailing, match=r"no space left on device .*after 92 s"):
        patience.pause(FULL)
    patience.progress()
    patience.pause(FULL)
    assert time.pauses[-1] == 0.5


def test_hours_of_work_between_two_errors_are_no_waiting_and_failing_slowly_is() -> None:
    time = Sleeper()
    patience = Patience(3600, clock=time.clock, sleep=time.sleep)
    for _ in range(10):
        patience.pause(FULL)
        time.now += 7200
    assert time.pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30, 30]
    slow = Patience(60, clock=time.clock, sleep=time.sleep)
    with pytest.raises(StillFailing):
        for _ in range(7):
            slow.pause(FULL)
            time.now += 20
    assert time.pauses[10:] == [0.5, 1, 2]


def test_errors_that_are_not_transient_are_raised_at_once() -> None:
    said: list[str] = []
    with pytest.raises(ZeroDivisionError):
        patiently(60, lambda: 1 // 0, said.append)
    assert not said


def test_what_is_done_again_may_differ_from_what_was_done_first() -> None:
    def fails() -> str:
        raise FULL

    assert patiently(60, fails, again=lambda: "again") == "again"


def test_events_go_on_after_an_error_that_passes_and_an_abandoned_iterator_is_closed() -> None:
    begun, closed = [], []

    def begin() -> Generator[int, None, None]:
        begun.append(True)
        try:
            yield len(begun)
            if len(begun) < 3:
                raise FULL
        finally:
            closed.append(True)

    assert list(patient_events(begin, Patience(60, sleep=lambda _: None), lambda _: True)) == [1, 2, 3]
    with closing(cast(Generator[int, None, None], patient_events(begin, Patience(60), lambda _: True))) as events:
        assert next(events) == 4
    assert len(closed) == 4


@pytest.mark.process
def test_a_wait_ends_at_once_on_ctrl_c() -> None:
    def wait() -> None:
        # A shell lets programs in the background ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            patiently(3600, lambda: (_ for _ in ()).throw(FULL), lambda _: os.kill(os.getpid(), signal.SIGINT))
        except KeyboardInterrupt:
            os._exit(7)

    process = multiprocessing.get_context("fork").Process(target=wait)
    begin = time.monotonic()
    process.start()
    process.join(60)
    assert process.exitcode == 7
    assert time.monotonic() - begin < 60
