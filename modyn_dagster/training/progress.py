"""How far a training is, and a bar for a terminal."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Final, NamedTuple

#: Seconds between two looks of a bar: drawing it at every step would cost more than a short step.
BAR_SECONDS: Final = 0.1


class TrainingProgress(NamedTuple):
    """Sent after every step; steps and epochs count from 1."""

    epoch: int
    n_epochs: int
    step: int
    n_steps: int
    loss: float


ProgressCallback = Callable[[TrainingProgress], None]


def now_and_then(
    tell: ProgressCallback, seconds: float, *, ending: bool = True, clock: Callable[[], float] = monotonic
) -> ProgressCallback:
    """Tell of a step when so many seconds have passed since the last time; with ``ending`` of the last step in any case.

    Between two times a step costs one look at the clock.
    """
    told = clock()

    def now(progress: TrainingProgress) -> None:
        nonlocal told
        moment = clock()
        if moment - told >= seconds or (ending and progress.step >= progress.n_steps):
            told = moment
            tell(progress)

    return now


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

        yield now_and_then(show, BAR_SECONDS)
