"""How far a training is, in the log of its Dagster run."""

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from modyn_dagster.training import TrainingProgress

_SECONDS_BETWEEN: Final = 10.0


def log_training(say: Callable[[str], object]) -> "Callable[[TrainingProgress], None]":
    """A progress callback for ``train`` that says something every ten seconds, and nothing of a short training."""
    last = monotonic()

    def report(progress: "TrainingProgress") -> None:
        nonlocal last
        if monotonic() - last < _SECONDS_BETWEEN:
            return
        last = monotonic()
        done = progress.step / progress.n_steps
        say(f"epoch {progress.epoch} of {progress.n_epochs}, {done:.0%} of all steps, loss {progress.loss:.6g}")

    return report
