"""Imports and other work that runs in a process of its own and is killed at one of its steps."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from modyn_dagster import storage
from modyn_dagster.catalog.database.engine import open_engine
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.spec.dataset import DatasetSpec

#: Exit code of an import that came to its end.
DONE = 0


def import_until(step: int, url: sa.URL, home: Path, spec: DatasetSpec, root: str, by: str) -> None:
    """Import history and end with SIGKILL at the given step."""
    work_until(step, url, lambda engine: import_history(engine, home, spec, root, by=by))


def work_until(step: int, url: sa.URL, work: Callable[[sa.Engine], object]) -> None:
    """Do some work and end with SIGKILL at the given step, from 1; steps are file renames (before, after) and commits."""
    engine = open_engine(url)
    passed = 0

    def reach() -> None:
        nonlocal passed
        passed += 1
        if passed == step:
            os.kill(os.getpid(), signal.SIGKILL)

    _around_renames(reach)
    sa.event.listen(engine, "commit", lambda _: reach())
    work(engine)
    engine.dispose()


def _around_renames(reach: Callable[[], None]) -> None:
    rename = os.replace

    def replace(source: Any, target: Any) -> None:
        reach()
        rename(source, target)
        reach()

    storage.os.replace = replace  # type: ignore[attr-defined]  # the module that storage imported
