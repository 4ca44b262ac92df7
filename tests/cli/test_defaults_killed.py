"""Commands that are killed while they write default files or use the server leave nothing that stops the next one."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.catalog.embedded.users import in_use, stop_unless_used
from modyn_dagster.cli.ui.code_location import DEFAULTS, CodeLocation

pytestmark = pytest.mark.process
FORK = multiprocessing.get_context("fork")


def killed_at(step: int, work: Callable[[], object]) -> bool:
    """Do some work in a process that is killed at a call of the operating system for files, from 1; False if it ends before."""

    def child() -> None:
        passed = 0

        def around(call: Callable[..., Any]) -> Callable[..., Any]:
            def stepping(*arguments: Any, **options: Any) -> Any:
                nonlocal passed
                passed += 1
                if passed == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*arguments, **options)

            return stepping

        for name in ("open", "link", "unlink", "fsync", "fdatasync", "close"):
            setattr(os, name, around(getattr(os, name)))
        work()
        os._exit(0)

    process = FORK.Process(target=child)
    process.start()
    process.join(60)
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


@pytest.mark.soak("screens")
def test_default_files_appear_whole_however_often_their_writers_are_killed(tmp_path: Path) -> None:
    wanted = {path.name: path.read_bytes() for path in DEFAULTS.iterdir()}
    for step in count(1):
        folder = tmp_path / str(step)
        folder.mkdir()
        killed = killed_at(step, lambda folder=folder: CodeLocation.find(folder, str(folder)))  # type: ignore[misc]  # bound at once
        # What is there is whole.
        visible = {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}
        assert visible.items() <= wanted.items()
        # The next one completes it, waits for nobody, and clears what was left but for a second name of the last file.
        CodeLocation.find(folder, str(folder))
        shown = {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".dagster.yaml.")}
        assert shown == wanted
        if not killed:
            break
    assert step > 4


def test_a_share_of_the_server_ends_with_a_killed_command(tmp_path: Path) -> None:
    ready, go_on = FORK.Event(), FORK.Event()

    def child() -> None:
        with in_use(tmp_path):
            ready.set()
            go_on.wait(60)

    process = FORK.Process(target=child)
    process.start()
    assert ready.wait(60)
    server = EmbeddedPostgres(tmp_path)
    assert not stop_unless_used(server)
    process.kill()
    process.join(60)
    assert stop_unless_used(server)
