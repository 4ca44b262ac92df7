"""A memory of samples that pull the model into different directions: GSS."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray
from modyn_dagster.selection.memory.memory import Factors, GradientMemory
from modyn_dagster.selection.sampler_state import State


class GSS(GradientMemory):
    """Gradient-based sample selection, the greedy variant.

    A new item's score is 1 plus the largest cosine between its gradient and those of ``candidates`` random items of the memory:
    between 0 (unlike all of them) and 2. While there is room it is taken. Into a full memory it comes only with a score below
    1: one item, drawn in proportion to the scores, is replaced by it with the chance ``score / (score + new score)``. Until
    there is a model all items score 1, and a full memory is a uniform reservoir.

    Args:
        n: places.
        seed: of the choices.
        candidates: items that a new one is compared with.

    Reference: Aljundi, Lin, Goujaud, Bengio, "Gradient based sample selection for online continual learning", NeurIPS 2019,
    Algorithm 2.
    """

    KIND: ClassVar[str] = "gss"

    def __init__(self, n: int, seed: int, candidates: int = 10) -> None:
        super().__init__(n, seed)
        if candidates < 1:
            raise ValueError(f"candidates must be at least 1, not {candidates!r}")
        self.candidates = candidates
        self._scores = np.empty(0)
        self._n_seen = 0

    def _update(self, keys: KeyArray, factors: Factors) -> None:
        if not factors:
            for key in keys.tolist():
                self._reserve(key)
            return
        units = [unit_rows(factor) for factor in factors]
        #: Which row of the factors each place of the memory has.
        rows = list(range(len(self._keys)))
        for row, key in enumerate(keys.tolist(), len(rows)):
            self._consider(key, row, rows, units)

    def forget(self, gone: Callable[[KeyArray], npt.NDArray[np.bool_]]) -> None:
        """Let go of items; see ``Memory``."""
        there = ~gone(self._keys)
        self._keys, self._scores = self._keys[there], self._scores[there]

    def _consider(self, key: int, row: int, rows: list[int], factors: Factors) -> None:
        self._n_seen += 1
        compared = self._rng.choice(len(rows), min(self.candidates, len(rows)), replace=False) if rows else np.empty(0, np.int64)
        cosines = np.ones(len(compared))
        for factor in factors:
            cosines *= factor[[rows[place] for place in compared.tolist()]] @ factor[row]
        score = 1.0 + (float(cosines.max()) if len(cosines) else 0.0)
        if len(rows) < self.n:
            self._keys, self._scores = np.append(self._keys, np.uint64(key)), np.append(self._scores, score)
            rows.append(row)
        elif score < 1:
            total = self._scores.sum()
            place = int(self._rng.choice(len(rows), p=self._scores / total)) if total > 0 else int(self._rng.integers(len(rows)))
            if self._rng.random() * (self._scores[place] + score) < self._scores[place]:
                self._keys[place], self._scores[place], rows[place] = key, score, row

    def _reserve(self, key: int) -> None:
        self._n_seen += 1
        if len(self._keys) < self.n:
            self._keys, self._scores = np.append(self._keys, np.uint64(key)), np.append(self._scores, 1.0)
        else:
            place = int(self._rng.integers(self._n_seen))
            if place < self.n:
                self._keys[place], self._scores[place] = key, 1.0

    def _content(self) -> State:
        return {"scores": self._scores.tolist(), "n_seen": self._n_seen}

    def _load(self, state: Mapping[str, Any]) -> None:
        self._scores, self._n_seen = np.array(state["scores"], np.float64), state["n_seen"]


def unit_rows(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Rows of length 1; rows of zeros stay, whose cosine with anything is 0."""
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    return np.divide(values, lengths, out=np.zeros_like(values), where=lengths > 0)
