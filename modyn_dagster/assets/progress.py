"""How far a training is, in the log of its Dagster run."""

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from modyn_dagster.training import TrainingProgress
    from modyn_dagster.training.progress import ProgressCallback

#: A line of the log is a row in Dagster's database.
_SECONDS_BETWEEN: Final = 10.0


def log_counts(say: Callable[[str], object], what: str, *, clock: Callable[[], float] = monotonic) -> Callable[[int, int], None]:
    """A callback for what counts, that says something every ten seconds, and nothing of what ends sooner."""
    told = clock()

    def report(done: int, total: int) -> None:
        nonlocal told
        if (now := clock()) - told >= _SECONDS_BETWEEN:
            say(f"{what}: {done} of {total}")
            told = now

    return report


def log_training(say: Callable[[str], object], *, clock: Callable[[], float] = monotonic) -> "ProgressCallback":
    """A progress callback for ``train`` that says something every ten seconds, and nothing of a short training."""
    from modyn_dagster.training.progress import now_and_then

    def report(progress: "TrainingProgress") -> None:
        done = progress.step / progress.n_steps
        say(f"epoch {progress.epoch} of {progress.n_epochs}, {done:.0%} of all steps, loss {progress.loss:.6g}")

    return now_and_then(report, _SECONDS_BETWEEN, ending=False, clock=clock)
