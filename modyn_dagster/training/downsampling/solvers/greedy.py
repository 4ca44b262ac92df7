"""Greedy maximisation of set functions: facility location, graph cut, log determinant."""

import math
from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from modyn_dagster.training.downsampling.solvers.precomputed_similarity import PrecomputedSimilarity
from modyn_dagster.training.downsampling.solvers.similarity import Likely, Similarity

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Strategy = Literal["naive", "lazy", "stochastic"]

#: Samples with the highest bounds that may be looked at soon.
_AHEAD: Final = 64


class Objective(Protocol):
    """A set function and the set built so far."""

    n: int

    def bounds(self) -> Float64:
        """An upper bound of every gain from now on, ``float64[n]``, in one pass over all."""

    def worn(self) -> bool:
        """True if enough gains were evaluated for new ``bounds`` to pay off."""

    def gain(self, j: int, likely: Likely | None = None) -> float:
        """Gain of adding ``j``; ``likely`` names the samples that may be asked for next."""

    def add(self, j: int) -> None:
        """Take ``j`` into the set."""


def greedy(
    objective: Objective, k: int, strategy: Strategy, rng: np.random.Generator, *, epsilon: float, selected: Sequence[int] = ()
) -> Int64:
    """``k`` new members after ``selected``, ``int64[k]`` in the order of picks; of equal gains the first sample wins.

    ``naive`` looks at every gain (Nemhauser, Wolsey, Fisher 1978), ``lazy`` only at those that earlier ones do not rule out
    (Minoux 1978; the same picks), ``stochastic`` at a random ``n / k * log(1 / epsilon)`` of them (Mirzasoleiman et al. 2015).
    """
    if strategy not in get_args(Strategy):
        raise ValueError(f"greedy must be one of {', '.join(get_args(Strategy))}, not {strategy!r}")
    if not 0 < epsilon < 1:
        raise ValueError(f"epsilon must be between 0 and 1, not {epsilon}")
    open_ = np.ones(objective.n, dtype=bool)
    for j in selected:
        objective.add(j)
        open_[j] = False
    if strategy == "lazy":
        return _lazy(objective, k, open_)
    picks = np.empty(k, dtype=np.int64)
    for i in range(k):
        if objective.worn():
            objective.bounds()
        candidates = np.flatnonzero(open_)
        if strategy == "stochastic":
            size = min(len(candidates), math.ceil(objective.n / k * math.log(1 / epsilon)))
            candidates = np.sort(rng.choice(candidates, size, replace=False))
        gains = [objective.gain(int(j)) for j in candidates]
        picks[i] = candidates[int(np.argmax(gains))]
        objective.add(int(picks[i]))
        open_[picks[i]] = False
    return picks


def _lazy(objective: Objective, k: int, open_: npt.NDArray[np.bool_]) -> Int64:
    # Gains only shrink as the set grows, so an old gain bounds the present one.
    bounds = np.where(open_, objective.bounds(), -np.inf)
    known_at = np.full(objective.n, -1)

    def likely() -> Int64:
        return np.argpartition(-bounds, min(_AHEAD, len(bounds)) - 1)[:_AHEAD]

    picks = np.empty(k, dtype=np.int64)
    for i in range(k):
        if i == 1 or objective.worn():
            # The first member changes nearly every gain: one pass is faster than as many looks.
            bounds = np.where(bounds > -np.inf, objective.bounds(), -np.inf)
        while known_at[j := int(np.argmax(bounds))] != i:
            bounds[j], known_at[j] = objective.gain(j, likely), i
        picks[i] = j
        objective.add(j)
        bounds[j] = -np.inf
    return picks


_TINY: Final = float(np.finfo(np.float64).tiny)


class Coverage:
    """Facility location, ``f(S) = sum over i of max over j in S of s_ij``, with ``f`` of nothing 0."""

    def __init__(self, similarity: Similarity | PrecomputedSimilarity) -> None:
        self.n, self._similarity = similarity.n, similarity
        # With nothing covered and no similarity below 0, gains are sums that are known already.
        self._untouched = similarity.lowest >= 0
        self._best: npt.NDArray[Any] = np.zeros(similarity.n, dtype=similarity.dtype)
        # Two samples that cover each other add the same. Which adds more is then not for rounding to decide.
        largest = float(np.abs(similarity.sums).max(initial=0))
        self._unit = float(np.ldexp(1.0, int(np.frexp(largest)[1]) - 40))

    def bounds(self) -> Float64:
        """Sums, and a hair more: they were not added up in the order of ``gain``."""
        sums = self._similarity.sums if self._untouched else self._similarity.sums_above(self._best)
        return sums * (1 + 1e-5) + self._unit

    def gain(self, j: int, likely: Likely | None = None) -> float:
        """``sum of max(0, s_ij - best_i)``."""
        if self._untouched:
            return self._coarse(self._similarity.sums[j])
        return self._coarse(self._similarity.sum_above(j, self._best, likely))

    def _coarse(self, gain: float) -> float:
        return float(np.rint(gain / self._unit) * self._unit)

    def add(self, j: int) -> None:
        """Raise what is covered."""
        self._similarity.lift(self._best, j)
        self._untouched = False

    def worn(self) -> bool:
        """Once as many rows were made one by one as half a pass makes, a pass pays: it may keep what still counts of all."""
        return 2 * self._similarity.n_made >= self.n


class Cut:
    """Graph cut, ``f(S) = trade_off * (sum over i, j in S of s_ij) - (sum over i in S, j in S of s_ij)``."""

    def __init__(self, similarity: Similarity | PrecomputedSimilarity, trade_off: float) -> None:
        if similarity.lowest < 0:
            raise ValueError(f"graph_cut needs similarities of at least 0, found {similarity.lowest}; use metric cosine or rbf")
        self.n, self._similarity = similarity.n, similarity
        self._gains = trade_off * similarity.sums - similarity.diagonal

    def bounds(self) -> Float64:
        """The gains themselves."""
        return self._gains.copy()

    def gain(self, j: int, likely: Likely | None = None) -> float:
        """Known without looking at similarities."""
        return float(self._gains[j])

    def worn(self) -> bool:
        """Gains are kept."""
        return False

    def add(self, j: int) -> None:
        """Every other one loses twice its similarity to ``j``."""
        self._gains -= 2 * self._similarity.row(j).astype(np.float64)


class Volume:
    """``f(S) = log det(s_SS + ridge * I)``, by a Cholesky factor that grows by a row per pick (Chen, Zhang, Zhou 2018)."""

    def __init__(self, similarity: Similarity | PrecomputedSimilarity, ridge: float, size: int) -> None:
        self.n, self._similarity = similarity.n, similarity
        self._left = similarity.diagonal + ridge
        self._factor = np.empty((size, self.n))
        self._size = 0

    def bounds(self) -> Float64:
        """The gains themselves."""
        return np.asarray(np.log(np.maximum(self._left, _TINY)))

    def gain(self, j: int, likely: Likely | None = None) -> float:
        """The logarithm of what is left of ``j`` besides the span of the set."""
        return float(np.log(max(float(self._left[j]), _TINY)))

    def worn(self) -> bool:
        """Gains are kept."""
        return False

    def add(self, j: int) -> None:
        """Project ``j`` out of everyone."""
        known = self._factor[: self._size]
        left = max(float(self._left[j]), _TINY)
        row = (self._similarity.row(j) - known[:, j] @ known) / np.sqrt(left)
        self._factor[self._size] = row
        self._left = self._left - row**2
        self._size += 1
