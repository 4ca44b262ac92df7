"""A repair killed before or after any rename is started again and ends the same."""

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any, Final

import pytest

from modyn_dagster import storage
from modyn_dagster.pipeline.integrity.finding import Kind
from modyn_dagster.pipeline.integrity.pacing import Pace
from modyn_dagster.pipeline.integrity.scope import Scope
from modyn_dagster.pipeline.integrity.verification import repair
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.settings import Settings
from tests.pipeline.integrity.homes import files_of, findings, full_world
from tests.pipeline.world import World

#: Kinds whose repair trains nothing in the killed process.
KINDS: Final[tuple[Kind, ...]] = ("deleted-lists", "indexes", "selector-states", "shards", "training-sets")


def repair_until(step: int, settings: Settings) -> int | None:
    """Repair in a process that is killed at a rename, counted on both sides from 1; returns its exit code."""
    process = multiprocessing.get_context("fork").Process(target=_repair, args=(step, settings))
    process.start()
    process.join()
    return process.exitcode


def _repair(step: int, settings: Settings) -> None:
    passed, rename = 0, os.replace

    def reach() -> None:
        nonlocal passed
        passed += 1
        if passed == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def replace(source: Any, target: Any) -> None:
        reach()
        rename(source, target)
        reach()

    storage.os.replace = replace  # type: ignore[attr-defined]  # the module that storage imported
    platform = Platform.open(settings)
    left = [outcome for outcome in repair(platform, Scope.of(platform, kinds=KINDS), Pace()) if not outcome.is_repaired]
    os._exit(len(left))


def damage(world: World) -> dict[Path, bytes]:
    """Damage a file of each kind, and remove another; returns the sound bytes."""
    files = {path: path.read_bytes() for kind in KINDS for path in (files_of(world, kind)[0], files_of(world, kind)[-1])}
    for number, path in enumerate(files):
        if number % 2:
            path.unlink()
        else:
            path.write_bytes(b"damaged")
    return files


def killed_at(world: World, step: int) -> bool:
    """Kill a repair at a step, and repair again; returns whether the step was reached."""
    sound = damage(world)
    code = repair_until(step, world.settings)
    assert code in (0, -signal.SIGKILL)
    assert repair_until(0, world.settings) == 0
    assert {path: path.read_bytes() for path in sound} == sound
    assert findings(world, kinds=[*KINDS, "unnamed"]) == []
    return code != 0


@pytest.mark.process
def test_a_repair_killed_at_a_rename_is_completed_by_the_next(settings: Settings, tmp_path: Path) -> None:
    world = full_world(settings, tmp_path / "project")
    assert [killed_at(world, step) for step in (1, 4)] == [True, True]
    world.close()


@pytest.mark.process
@pytest.mark.soak("kills-store")
def test_a_repair_killed_at_any_rename_is_completed_by_the_next(settings: Settings, tmp_path: Path) -> None:
    world = full_world(settings, tmp_path / "project")
    step = 1
    while killed_at(world, step):
        step += 1
    assert step > 2 * len(KINDS)
    world.close()
