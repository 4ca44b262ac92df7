"""Progress bars of replays, trainings and commands, drawn on standard error if it is a terminal."""

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import IO, TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

#: Seconds between two updates of a bar: drawing it at every step would cost more than a short step.
BAR_SECONDS: Final = 0.1


#: Terminal of ``kept_terminal``.
_KEPT: Final[ContextVar[IO[str] | None]] = ContextVar("kept terminal", default=None)


@contextmanager
def kept_terminal() -> Iterator[IO[str] | None]:
    """The terminal that standard error is, and goes on to be for bars inside the block; None where it is none.

    Dagster sends the standard error of a run to a file, also where a command executes the run itself.
    """
    if (kept := _KEPT.get()) is not None or not sys.stderr.isatty():
        yield kept
        return
    with ExitStack() as stack:
        try:
            terminal: IO[str] = stack.enter_context(os.fdopen(os.dup(sys.stderr.fileno()), "w"))
        except io.UnsupportedOperation:  # it has no descriptor that could be sent elsewhere
            terminal = sys.stderr
        token = _KEPT.set(terminal)
        stack.callback(lambda: _KEPT.reset(token))
        yield terminal


class TrainingProgress(NamedTuple):
    """Sent after every step; steps and epochs count from 1."""

    epoch: int
    n_epochs: int
    step: int
    n_steps: int
    loss: float


ProgressCallback = Callable[[TrainingProgress], None]


@contextmanager
def progress_bar(title: str, *, counted: bool = True) -> Iterator[Callable[[int, int], None]]:
    """A bar; yields a function of (items done, items in total). Without ``counted`` it shows only the elapsed time."""
    from rich.progress import MofNCompleteColumn, TimeElapsedColumn, TimeRemainingColumn

    numbers = (MofNCompleteColumn(), TimeRemainingColumn()) if counted else (TimeElapsedColumn(),)
    with _display("{task.description}", *numbers) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def training_bar(description: str) -> Iterator[ProgressCallback | None]:
    """A progress bar on standard error for ``train(progress=...)``; None where no terminal is attached."""
    if _terminal() is None:
        yield None
        return
    from rich.progress import MofNCompleteColumn, TextColumn, TimeRemainingColumn

    loss = TextColumn("epoch {task.fields[epoch]} · loss {task.fields[loss]:.4f}")
    with _display("{task.description}", MofNCompleteColumn(), loss, TimeRemainingColumn()) as bar:
        task = bar.add_task(description, total=None, epoch=1, loss=float("nan"))

        def show(progress: TrainingProgress) -> None:
            bar.update(task, completed=progress.step, total=progress.n_steps, epoch=progress.epoch, loss=progress.loss)

        yield throttled(show, BAR_SECONDS)


@contextmanager
def replay_bar(pipeline: str) -> Iterator["ReplayBars | None"]:
    """The bars of a replay on standard error; None where no terminal is attached."""
    if _terminal() is None:
        yield None
        return
    from rich.progress import MofNCompleteColumn, TimeRemainingColumn

    with _display(f"{pipeline} {{task.description}}", MofNCompleteColumn(), TimeRemainingColumn()) as display:
        yield ReplayBars(display)


class ReplayBars:
    """A bar of batches, and below it a bar of the steps of a training.

    Attributes:
        training: receives the progress of every step, and draws ten times a second at most.
    """

    def __init__(self, display: "Progress") -> None:
        self._display = display
        self._batches = display.add_task("begins", total=None)
        self._steps = display.add_task("", total=None, visible=False)
        self.training: ProgressCallback = throttled(self._step, BAR_SECONDS)

    def batch(self, batch: str, done: int, total: int) -> None:
        """Show the next batch, and hide the bar of steps."""
        self._display.update(self._batches, description=batch, completed=done, total=total)
        self._display.update(self._steps, visible=False)

    def note(self, line: str) -> None:
        """Print a line above the bars, where it stays."""
        self._display.console.print(line, markup=False, highlight=False)

    def _step(self, progress: TrainingProgress) -> None:
        text = f"training, epoch {progress.epoch} of {progress.n_epochs} · loss {progress.loss:.4f}"
        self._display.update(self._steps, description=text, completed=progress.step, total=progress.n_steps, visible=True)


def throttled(
    report: ProgressCallback, seconds: float, *, ending: bool = True, clock: Callable[[], float] = monotonic
) -> ProgressCallback:
    """A callback that passes on at most one step per period; a step in between costs one reading of the clock.

    Args:
        report: receives the steps that are passed on.
        seconds: length of the period.
        ending: pass on the last step in any case.
        clock: seconds since some moment.
    """
    last = clock()

    def throttle(progress: TrainingProgress) -> None:
        nonlocal last
        moment = clock()
        if moment - last >= seconds or (ending and progress.step >= progress.n_steps):
            last = moment
            report(progress)

    return throttle


def _terminal() -> IO[str] | None:
    """Terminal that bars are drawn on. rich itself takes a log for one where variables such as FORCE_COLOR say so."""
    return _KEPT.get() or (sys.stderr if sys.stderr.isatty() else None)


@contextmanager
def _display(description: str, *columns: "ProgressColumn") -> "Iterator[Progress]":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    parts = (TextColumn(description), BarColumn(), *columns)
    with (
        kept_terminal() as terminal,
        Progress(*parts, console=Console(file=terminal), disable=terminal is None, transient=True) as display,
    ):
        yield display
