"""Files of predictions, written behind the back of whoever goes on computing: a disk that is waited for costs no processor."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from modyn_dagster.evaluation.predictions import Predictions, WrittenPredictions, write_predictions
from modyn_dagster.spec.training import TaskKind


class PredictionWriter:
    """One thread that writes files in the order they are given; at most one waits, so memory stays bounded.

    Leaving the block waits for all of them. A file that could not be written says so where its future is asked, and nowhere
    else.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="predictions")
        self._last: Future[WrittenPredictions] | None = None

    def write(self, path: Path, parts: Sequence[Predictions], *, kind: TaskKind, n_outputs: int) -> Future[WrittenPredictions]:
        """``write_predictions`` in the thread; waits until the file before has been written."""
        if self._last is not None:
            self._last.exception()
        self._last = self._pool.submit(write_predictions, path, parts, kind=kind, n_outputs=n_outputs)
        return self._last

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._pool.shutdown(wait=True)
