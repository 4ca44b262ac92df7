"""A sample in which each key's chance is in proportion to its score: exact in size, one position after the other."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import BadScore
from modyn_dagster.keys import KeyArray

#: Keys and their scores.
Scored = tuple[KeyArray, npt.NDArray[np.float64]]


class Systematic:
    """Keeps ``size`` keys; key i with probability ``min(1, score_i / step)``, where the step makes these add up to ``size``.

    Scores are laid end to end and a ruler with marks a step apart is put on them, its first mark at ``start`` steps: a key that
    lies under a mark is kept. Keys longer than a step are kept for sure and taken out of the row. So the size is exact, no key
    comes twice, and ``1 / probability`` is an unbiased weight. Keys without a score above 0 are never kept; where fewer
    have one all of them are.

    Args:
        pool: starts a pass over keys and scores; every pass gives the same chunks.
        size: to keep.
        start: uniform on [0, 1).

    Raises:
        BadScore: a score is negative, infinite or no number.

    Reference: Madow, "On the theory of systematic sampling", Annals of Mathematical Statistics 1949.
    """

    def __init__(self, pool: Callable[[], Iterable[Scored]], size: int, start: float) -> None:
        self._pool = pool
        self._start = start
        self._step, self._n_marks, self.n_kept = self._ruler(size)

    def __iter__(self) -> Iterator[tuple[KeyArray, npt.NDArray[np.float64]]]:
        """Kept keys in key order and their probabilities, chunk by chunk."""
        before, n_before = 0.0, 0.0
        for keys, scores in self._pool():
            certain = scores >= self._step
            row = before + np.cumsum(np.where(certain, 0.0, scores))
            marks = np.clip(np.ceil(row / self._step - self._start), 0, self._n_marks) if self._n_marks else np.zeros(len(row))
            kept = (scores > 0) & (certain | (np.diff(marks, prepend=n_before) > 0))
            if len(row):
                before, n_before = float(row[-1]), float(marks[-1])
            chance = np.ones(np.count_nonzero(kept))
            np.divide(scores[kept], self._step, out=chance, where=~certain[kept])
            yield keys[kept], chance

    def _ruler(self, size: int) -> tuple[float, int, int]:
        """The step, the number of marks and of keys to keep; step 0 when all that have a score are kept."""
        step, n_before = np.inf, -1
        # Whatever is longer than a step leaves the row, which makes the step shorter: this ends after few passes.
        while True:
            total, n_certain, n_positive = 0.0, 0, 0
            for keys, scores in self._pool():
                _check(keys, scores)
                certain = scores >= step
                total += float(scores[~certain].sum())
                n_certain += int(np.count_nonzero(certain))
                n_positive += int(np.count_nonzero(scores))
            if n_positive <= size:
                return 0.0, 0, n_positive
            if n_certain in (n_before, size):
                return step, size - n_certain, size
            n_before, step = n_certain, total / (size - n_certain)


def _check(keys: KeyArray, scores: npt.NDArray[np.float64]) -> None:
    bad = np.flatnonzero(~(np.isfinite(scores) & (scores >= 0)))
    if len(bad):
        raise BadScore(int(keys[bad[0]]), float(scores[bad[0]]))
