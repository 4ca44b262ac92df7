"""How far a replay is, as a bar for a terminal."""

import contextlib
import sys
from collections.abc import Iterator

from modyn_dagster.pipeline.replay import Progress as ReplayProgress


@contextlib.contextmanager
def replay_bar(pipeline: str) -> Iterator[ReplayProgress | None]:
    """A bar over the batches of a replay, on standard error; None where no terminal is attached."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(f"{pipeline} {{task.description}}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda batch, done, total: bar.update(task, description=batch, completed=done, total=total)
