"""How far a training is, and a bar for a terminal."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """Sent after every step; steps and epochs count from 1."""

    epoch: int
    n_epochs: int
    step: int
    n_steps: int
    loss: float


ProgressCallback = Callable[[TrainingProgress], None]


@contextlib.contextmanager
def training_bar(description: str) -> Iterator[ProgressCallback | None]:
    """A progress bar on standard error for ``train(progress=...)``; None where no terminal is attached."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epoch {task.fields[epoch]} · loss {task.fields[loss]:.4f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=None, epoch=1, loss=float("nan"))

        def show(progress: TrainingProgress) -> None:
            bar.update(task, completed=progress.step, total=progress.n_steps, epoch=progress.epoch, loss=progress.loss)

        yield show
