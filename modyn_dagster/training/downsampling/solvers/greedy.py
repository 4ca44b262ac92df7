"""Greedy maximisation of set functions: facility location, graph cut, log determinant."""

import math
from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from modyn_dagster.training.downsampling.solvers.precomputed_similarity import PrecomputedSimilarity
from modyn_dagster.training.downsampling.solvers.similarity import Similarity, UpcomingRows

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Strategy = Literal["naive", "lazy", "stochastic"]

#: Upcoming samples: those with the highest bounds.
_AHEAD: Final = 64


class Objective(Protocol):
    """Set function, and the set built so far."""

    n: int

    def bounds(self) -> Float64:
        """Compute upper bounds of all later gains, ``float64[n]``, in one pass."""

    def should_refresh(self) -> bool:
        """Tell if enough gains were evaluated for new ``bounds`` to pay off."""

    def gain(self, j: int, upcoming: UpcomingRows | None = None) -> float:
        """Compute the gain of adding ``j``; ``upcoming`` lists the samples that may follow."""

    def add(self, j: int) -> None:
        """Add ``j`` to the set."""


def greedy(
    objective: Objective, k: int, strategy: Strategy, rng: np.random.Generator, *, epsilon: float, selected: Sequence[int] = ()
) -> Int64:
    """Choose ``k`` new members after ``selected``: ``int64[k]`` in the order of picks. The first of equal gains wins.

    ``naive`` evaluates every gain (Nemhauser, Wolsey, Fisher 1978), ``lazy`` only those that earlier bounds do not rule out
    (Minoux 1978; the same picks), ``stochastic`` at a random ``n / k * log(1 / epsilon)`` of them (Mirzasoleiman et al. 2015).
    """
    if strategy not in get_args(Strategy):
        raise ValueError(f"greedy must be one of {', '.join(get_args(Strategy))}, not {strategy!r}")
    if not 0 < epsilon < 1:
        raise ValueError(f"epsilon must be between 0 and 1, not {epsilon}")
    available = np.ones(objective.n, dtype=bool)
    for j in selected:
        objective.add(j)
        available[j] = False
    if strategy == "lazy":
        return _lazy(objective, k, available)
    picks = np.empty(k, dtype=np.int64)
    for i in range(k):
        if objective.should_refresh():
            objective.bounds()
        candidates = np.flatnonzero(available)
        if strategy == "stochastic":
            size = min(len(candidates), math.ceil(objective.n / k * math.log(1 / epsilon)))
            candidates = np.sort(rng.choice(candidates, size, replace=False))
        gains = [objective.gain(int(j)) for j in candidates]
        picks[i] = candidates[int(np.argmax(gains))]
        objective.add(int(picks[i]))
        available[picks[i]] = False
    return picks


def _lazy(objective: Objective, k: int, available: npt.NDArray[np.bool_]) -> Int64:
    # Gains only shrink as the set grows, so an old gain bounds the present one.
    bounds = np.where(available, objective.bounds(), -np.inf)
    evaluated_at = np.full(objective.n, -1)

    def upcoming() -> Int64:
        return np.argpartition(-bounds, min(_AHEAD, len(bounds)) - 1)[:_AHEAD]

    picks = np.empty(k, dtype=np.int64)
    for i in range(k):
        if i == 1 or objective.should_refresh():
            # The first member changes nearly every gain: one pass is faster than single evaluations.
            bounds = np.where(bounds > -np.inf, objective.bounds(), -np.inf)
        while evaluated_at[j := int(np.argmax(bounds))] != i:
            bounds[j], evaluated_at[j] = objective.gain(j, upcoming), i
        picks[i] = j
        objective.add(j)
        bounds[j] = -np.inf
    return picks


_TINY: Final = float(np.finfo(np.float64).tiny)


class Coverage:
    """Facility location, ``f(S) = sum over i of max over j in S of s_ij``, with ``f`` of nothing 0."""

    def __init__(self, similarity: Similarity | PrecomputedSimilarity) -> None:
        self.n, self._similarity = similarity.n, similarity
        # Without members and negative similarities, gains equal the row sums.
        self._untouched = similarity.lowest >= 0
        self._best: npt.NDArray[Any] = np.zeros(similarity.n, dtype=similarity.dtype)
        # Samples that cover each other have equal gains. The grid keeps rounding from ordering them.
        largest = float(np.abs(similarity.sums).max(initial=0))
        self._unit = float(np.ldexp(1.0, int(np.frexp(largest)[1]) - 40))

    def bounds(self) -> Float64:
        """Compute the sums, slightly enlarged: the order of summation differs from that of ``gain``."""
        sums = self._similarity.sums if self._untouched else self._similarity.sums_above(self._best)
        return sums * (1 + 1e-5) + self._unit

    def gain(self, j: int, upcoming: UpcomingRows | None = None) -> float:
        """Compute ``sum of max(0, s_ij - best_i)``."""
        if self._untouched:
            return self._coarse(self._similarity.sums[j])
        return self._coarse(self._similarity.sum_above(j, self._best, upcoming))

    def _coarse(self, gain: float) -> float:
        return float(np.rint(gain / self._unit) * self._unit)

    def add(self, j: int) -> None:
        """Raise the best similarity of every sample."""
        self._similarity.raise_level(self._best, j)
        self._untouched = False

    def should_refresh(self) -> bool:
        """Tell if as many single rows were computed as in half a pass: then a pass pays off, since it may keep all entries."""
        return 2 * self._similarity.n_rows_computed >= self.n


class Cut:
    """Graph cut, ``f(S) = trade_off * (sum over i, j in S of s_ij) - (sum over i in S, j in S of s_ij)``."""

    def __init__(self, similarity: Similarity | PrecomputedSimilarity, trade_off: float) -> None:
        if similarity.lowest < 0:
            raise ValueError(f"graph_cut needs similarities of at least 0, found {similarity.lowest}; use metric cosine or rbf")
        self.n, self._similarity = similarity.n, similarity
        self._gains = trade_off * similarity.sums - similarity.diagonal

    def bounds(self) -> Float64:
        """Return the gains themselves."""
        return self._gains.copy()

    def gain(self, j: int, upcoming: UpcomingRows | None = None) -> float:
        """Return the maintained gain."""
        return float(self._gains[j])

    def should_refresh(self) -> bool:
        """Return False: gains are always exact."""
        return False

    def add(self, j: int) -> None:
        """Reduce every gain by twice the similarity to ``j``."""
        self._gains -= 2 * self._similarity.row(j).astype(np.float64)


class Volume:
    """Log determinant, ``f(S) = log det(s_SS + ridge * I)``, by a growing Cholesky factor (Chen, Zhang, Zhou 2018)."""

    def __init__(self, similarity: Similarity | PrecomputedSimilarity, ridge: float, size: int) -> None:
        self.n, self._similarity = similarity.n, similarity
        self._residual = similarity.diagonal + ridge
        self._factor = np.empty((size, self.n))
        self._size = 0

    def bounds(self) -> Float64:
        """Return the gains themselves."""
        return np.asarray(np.log(np.maximum(self._residual, _TINY)))

    def gain(self, j: int, upcoming: UpcomingRows | None = None) -> float:
        """Compute the logarithm of the residual of ``j`` outside the span of the set."""
        return float(np.log(max(float(self._residual[j]), _TINY)))

    def should_refresh(self) -> bool:
        """Return False: gains are always exact."""
        return False

    def add(self, j: int) -> None:
        """Project ``j`` out of every residual."""
        rows = self._factor[: self._size]
        residual = max(float(self._residual[j]), _TINY)
        row = (self._similarity.row(j) - rows[:, j] @ rows) / np.sqrt(residual)
        self._factor[self._size] = row
        self._residual = self._residual - row**2
        self._size += 1
