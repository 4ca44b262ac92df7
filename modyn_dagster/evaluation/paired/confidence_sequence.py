"""Empirical-Bernstein confidence sequence of the mean difference of two models, valid at every sample at once.

The differences ``d`` of bounded losses lie in [-1, 1]. With probability ``1 - alpha`` the lower bound is below the mean of their
conditional expectations ``(1/n) sum E[d_i | everything before sample i]`` for every n at once. Samples need be neither
independent nor equally distributed, and who looks after each sample may stop at any time. As the mean is that of all
samples so far, bounds of different n are of different quantities: a later bound may be wider, and bounds are not intersected.

The increments are the differences, their centre the mean of those before, held within 1/4 of 0: so an increment
less its centre is at least -5/4, rather than -2. The variance is the sum of squares of the differences less their centres.

Source: Y. J. Choe, A. Ramdas, Comparing sequential forecasters, Operations Research 2023, Theorem 2, with the boundary of
`mixture_boundary`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.metrics.losses import Float64
from modyn_dagster.evaluation.paired.mixture_boundary import boundary, log_mixture
from modyn_dagster.evaluation.paired.verdict import Bounds, PairedVerdict, judged, undecided

#: Centres of differences stay within this distance of 0: two models that are worth a test hardly differ by more.
_FARTHEST_CENTRE: Final = 0.25
#: Farthest that a difference can lie from its centre.
_REACH: Final = 1 + _FARTHEST_CENTRE


class Running(NamedTuple):
    """Statistics after each of some samples: number of samples, sum of differences, sum of squares less centres, ``[n]`` each."""

    n: npt.NDArray[np.int64]
    total: Float64
    squares: Float64


@dataclass(frozen=True, slots=True)
class DifferenceState:
    """All that the confidence sequence keeps of the samples so far: three numbers.

    Attributes:
        n: samples.
        total: sum of their differences.
        squares: sum of squares of the differences less their centres.

    Examples
    --------
    >>> state = DifferenceState().updated(np.array([1.0, 0.0, -1.0, 1.0]))
    >>> state.n, state.total, round(state.squares, 4)
    (4, 1.0, 3.625)
    >>> DifferenceState.of_json(state.to_json()) == state
    True
    """

    n: int = 0
    total: float = 0.0
    squares: float = 0.0

    def updated(self, differences: npt.ArrayLike) -> Self:
        """Return the state after more samples, in stream order; the bits do not depend on how samples are divided among calls.

        Args:
            differences: loss of the incumbent less that of the candidate, ``float64[n]`` in [-1, 1].

        Raises:
            ConfigError: a difference is NaN or outside [-1, 1].
        """
        run = self.running(differences)
        return self if len(run.n) == 0 else type(self)(int(run.n[-1]), float(run.total[-1]), float(run.squares[-1]))

    def running(self, differences: npt.ArrayLike) -> Running:
        """Return the statistics after each of more samples; arguments and errors as of ``updated``."""
        d = np.asarray(differences, np.float64)
        if not (np.abs(d) <= 1).all():
            raise ConfigError("paired test", "differences", float(d[~(np.abs(d) <= 1)][0]), "must lie in [-1, 1]")
        n = np.arange(self.n, self.n + len(d) + 1)
        # One number after the other, as later calls go on: sums in pairs would have other bits.
        total = np.cumsum(np.concatenate([[self.total], d]))
        # As if one difference of 0 came first, so that the first sample has a centre.
        centre = np.clip(total[:-1] / (n[:-1] + 1), -_FARTHEST_CENTRE, _FARTHEST_CENTRE)
        squares = np.cumsum(np.concatenate([[self.squares], np.square(d - centre)]))
        return Running(n[1:], total[1:], squares[1:])

    @property
    def mean(self) -> float:
        """Mean difference; 0 without samples."""
        return self.total / self.n if self.n else 0.0

    def to_json(self) -> dict[str, Any]:
        """Fields as JSON values; floats come back with the same bits."""
        return asdict(self)

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` returned."""
        return cls(int(content["n"]), float(content["total"]), float(content["squares"]))


def reach(run: Running, alpha: float) -> Float64:
    """Distance of a one-sided bound from the mean after each sample, ``float64[n]``, in units of the differences."""
    return np.asarray(_REACH * boundary(run.squares / _REACH**2, alpha) / np.maximum(run.n, 1))


def log_evidence(run: Running, margin: float) -> Float64:
    """Logarithm of the evidence that the mean difference exceeds a margin, ``float64[n]``.

    It is at least ``log(1 / alpha)`` exactly where the lower bound is at least the margin, and takes one evaluation instead of
    a search. Evidence below 1 may be given as any number below.
    """
    return log_mixture((run.total - margin * run.n) / _REACH, run.squares / _REACH**2)


def confidence_bounds(state: DifferenceState, alpha: float, unit: float = 1.0) -> Bounds:
    """Bounds after the samples so far.

    Args:
        state: of at least one sample.
        alpha: error probability of each one-sided bound, and of the two-sided interval as a whole.
        unit: value of the metric that a difference of 1 stands for.
    """
    run = Running(np.array([state.n]), np.array([state.total]), np.array([state.squares]))
    one, two = (float(reach(run, a)[0]) for a in (alpha, alpha / 2))
    ends = (state.mean - one, state.mean + one, state.mean - two, state.mean + two)
    return Bounds(*(unit * min(1.0, max(-1.0, end)) for end in ends))


def confidence_verdict(
    state: DifferenceState, *, alpha: float = 0.05, margin: float = 0.0, unit: float = 1.0, min_samples: int = 1
) -> PairedVerdict:
    """Verdict on the samples so far; it may be asked for after each sample.

    The probability that ``better`` is ever said while the running mean of conditional differences is at most the margin is at
    most ``alpha``; likewise for ``worse or equal`` while it exceeds the margin.

    Args:
        state: of the samples so far.
        alpha: error probability of either.
        margin: in the unit of the metric.
        unit: value of the metric that a difference of 1 stands for.
        min_samples: with fewer samples the verdict is open.

    >>> confidence_verdict(DifferenceState().updated(np.repeat([1.0, 0.0], [30, 270]))).result
    'better'
    """
    if state.n < max(1, min_samples):
        reason = f"{state.n:,} samples, at least {max(1, min_samples):,} are needed"
        return undecided(reason, state.n, margin=margin, confidence=1 - alpha)
    bounds = confidence_bounds(state, alpha, unit)
    return judged(state.n, unit * state.mean, bounds, margin=margin, confidence=1 - alpha)


class BoundsPath(NamedTuple):
    """Bounds at some numbers of samples, in the unit of the metric: ``[k]`` each, for tables and plots."""

    n: npt.NDArray[np.int64]
    mean: Float64
    lower: Float64
    upper: Float64
    low: Float64
    high: Float64


def bounds_path(differences: npt.ArrayLike, *, alpha: float = 0.05, unit: float = 1.0, points: int = 200) -> BoundsPath:
    """Bounds along the stream, at up to ``points`` numbers of samples that grow evenly by ratio, the last of all included.

    >>> bounds_path(np.repeat([1.0, 0.0], [30, 270]), points=3).n.tolist()
    [1, 17, 300]
    """
    run = DifferenceState().running(differences)
    if len(run.n) == 0:
        return BoundsPath(np.empty(0, np.int64), *(np.empty(0) for _ in range(5)))
    rows = np.unique(np.geomspace(1, len(run.n), points).round().astype(np.int64)) - 1
    run = Running(run.n[rows], run.total[rows], run.squares[rows])
    mean, one, two = run.total / run.n, reach(run, alpha), reach(run, alpha / 2)
    ends = (mean, mean - one, mean + one, mean - two, mean + two)
    return BoundsPath(run.n, *(np.asarray(unit * np.clip(end, -1, 1)) for end in ends))
