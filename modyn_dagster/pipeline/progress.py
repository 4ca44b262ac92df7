"""How far a replay is, as bars for a terminal: its batches, and the training that is under way."""

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from modyn_dagster.training.progress import BAR_SECONDS, ProgressCallback, TrainingProgress, now_and_then

if TYPE_CHECKING:
    from rich.progress import Progress


class ReplayBars:
    """Two bars of one display.

    Attributes:
        training: is told of every step, and draws now and then.
    """

    def __init__(self, display: "Progress") -> None:
        self._display = display
        self._batches = display.add_task("", total=None)
        self._steps = display.add_task("", total=None, visible=False)
        self.training: ProgressCallback = now_and_then(self._step, BAR_SECONDS)

    def batch(self, batch: str, done: int, total: int) -> None:
        """The next batch begins."""
        self._display.update(self._batches, description=batch, completed=done, total=total)
        self._display.update(self._steps, visible=False)

    def _step(self, progress: TrainingProgress) -> None:
        text = f"training, epoch {progress.epoch} of {progress.n_epochs} · loss {progress.loss:.4f}"
        self._display.update(self._steps, description=text, completed=progress.step, total=progress.n_steps, visible=True)


@contextlib.contextmanager
def replay_bar(pipeline: str) -> Iterator[ReplayBars | None]:
    """Bars on standard error; None where no terminal is attached."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(f"{pipeline} {{task.description}}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        yield ReplayBars(display)
