"""Gamma-exponential mixture: a boundary that a sum of bounded differences crosses at any time with small probability.

For increments ``x`` with conditional means ``m``, predictable centres ``y`` and ``x - y >= -1``, the process
``exp(l sum(x - m) - psi(l) sum((x - y)^2))`` with ``psi(l) = -log(1 - l) - l`` is a supermartingale that begins at 1, for each
``l`` of [0, 1): by ``exp(l z - psi(l) z^2) <= 1 + l z`` for ``z >= -1`` (Fan, Grama, Liu, Exponential inequalities for
martingales with applications, 2015). The means may change from sample to sample. The mixture over ``l`` with the density
proportional to ``(1 - l)^(rho - 1) exp(-rho (1 - l))`` is one, too, and has a closed form. By Ville's inequality it ever reaches
``1 / alpha`` with a probability of at most ``alpha``.

Source: S. R. Howard, A. Ramdas, J. McAuliffe, J. Sekhon, Time-uniform, nonparametric, nonasymptotic confidence sequences, Annals
of Statistics 2021, Theorem 4 and Proposition 9.
"""

from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.metrics.losses import Float64

#: Precision of the mixture: at alpha 0.05 the boundary is tightest near a variance of 64, that of a hundred differing predictions
#: of two classifiers on the scale of `confidence_sequence`. A mixture made for a tenth of that variance would be 13 % tighter
#: there, one for ten times of it 9 %, and one for a hundred times 18 %.
RHO: Final = 10.0
#: Steps at most; five to ten reach the precision.
_STEPS: Final = 60
#: Number from which on Stirling's series is exact to the last bits.
_LARGE: Final = 1e3
#: Relative precision of the boundary, by which it is rounded up.
_PRECISION: Final = 1e-11


def log_mixture(total: npt.ArrayLike, variance: npt.ArrayLike, rho: float = RHO) -> Float64:
    """Logarithm of the mixture, the evidence against ``sum of means <= 0``, ``float64`` in the common shape.

    Args:
        total: sum of the increments less their hypothetical means. A negative one counts as 0, where the value is at most 0.
        variance: sum of squares of the increments less their centres.
        rho: precision of the mixture.

    >>> log_mixture([0.0, 20.0, 40.0], 64.0).round(2)
    array([-1.06,  1.89,  7.63])
    """
    value, _ = _value_and_slope(np.maximum(np.asarray(total, np.float64), 0), np.asarray(variance, np.float64), rho)
    return value


def boundary(variance: npt.ArrayLike, alpha: float, rho: float = RHO) -> Float64:
    """Boundary at some variances: the smallest total at which the mixture is ``1 / alpha``, rounded up.

    It grows with the variance and falls with ``alpha``.

    Args:
        variance: ``float64[n]``, at least 0.
        alpha: probability of ever crossing the boundary, at most; between 0 and 1.
        rho: precision of the mixture.

    >>> boundary([0.0, 64.0, 6400.0], 0.05).round(1)
    array([  8.6,  24.7, 272.3])
    """
    v = np.asarray(variance, np.float64)
    wanted = -np.log(alpha)
    total = 2 * (wanted + np.sqrt(2 * wanted * (v + rho))) + 1
    while (short := log_mixture(total, v, rho) < wanted).any():
        total = np.where(short, 2 * total, total)
    # Newton's method: the logarithm is convex in the total, so that the steps come down to the boundary and do not pass it.
    for _ in range(_STEPS):
        value, slope = _value_and_slope(total, v, rho)
        step = (value - wanted) / slope
        total = total - np.maximum(step, 0)
        if (step <= _PRECISION * total).all():
            break
    return np.asarray(total * (1 + _PRECISION))


def _value_and_slope(s: Float64, v: Float64, rho: float) -> tuple[Float64, Float64]:
    """Logarithm of the mixture at totals from 0 on, and its derivative.

    With ``a = v + rho`` and the regularised incomplete gamma function P it is, less the same at ``s = v = 0``,
    ``s + v + log(gamma(a) P(a, s + a)) - a log(s + a)``. Large terms that cancel out are taken together.
    """
    # Imported here: it takes a third of a second.
    from scipy.special import gammainc

    a = v + rho
    excess, error = s - a * np.log1p(s / a), _stirling(a)
    first_error, first_share = _at_first(rho)
    share = gammainc(a, s + a)
    value = excess + error - first_error + np.log(share / first_share)
    slope = s / (s + a) + np.exp(-excess - error) / (share * (s + a))
    return np.asarray(value), np.asarray(slope)


@cache
def _at_first(rho: float) -> tuple[float, float]:
    """Error of Stirling's formula and incomplete gamma function before the first sample."""
    from scipy.special import gammainc

    return float(_stirling(np.asarray(rho, np.float64))), float(gammainc(rho, rho))


def _stirling(a: Float64) -> Float64:
    """Error of ``a log(a) - a`` as the logarithm of the gamma function."""
    from scipy.special import gammaln

    small = np.minimum(a, _LARGE)
    series = 0.5 * np.log(2 * np.pi / a) + 1 / (12 * a) - 1 / (360 * a**3)
    return np.asarray(np.where(a > _LARGE, series, gammaln(small) - small * np.log(small) + small))
