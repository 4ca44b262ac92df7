"""Greedy maximisation of a submodular function: one pick after the other, each the one that adds most."""

import math
from collections.abc import Sequence
from typing import Final, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from modyn_dagster.training.downsampling.similarity import Likely

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
        """Whether so many gains were looked at that ``bounds`` would pay again."""

    def gain(self, j: int, likely: Likely | None = None) -> float:
        """What ``j`` would add; ``likely`` says which samples may be asked for next."""

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
