"""Progress of replays, trainings and commands, as bars on standard error; nothing is drawn where that is no terminal."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from rich.progress import Progress


@contextmanager
def progress_bar(title: str, *, counted: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Yields what is told how many of how many are done; one that is not ``counted`` only shows that, and how long, it works."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    numbers = (MofNCompleteColumn(), TimeRemainingColumn()) if counted else (TimeElapsedColumn(),)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), *numbers)
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


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


def throttled(
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

        yield throttled(show, BAR_SECONDS)


class ReplayBars:
    """Two bars of one display.

    Attributes:
        training: is told of every step, and draws now and then.
    """

    def __init__(self, display: "Progress") -> None:
        self._display = display
        self._batches = display.add_task("", total=None)
        self._steps = display.add_task("", total=None, visible=False)
        self.training: ProgressCallback = throttled(self._step, BAR_SECONDS)

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
