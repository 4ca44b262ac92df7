"""Means and medians of columns, exact and thus the same for every order of the samples."""

from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]

#: Bits of the mantissa of a float64, and of each of the halves that it is cut into.
_MANTISSA: Final = 53
_HALF: Final = 27
#: Exponents of ``frexp`` begin here.
_LEAST: Final = -1080
_N_EXPONENTS: Final = 2110


class ExactMean:
    """Mean of numbers, rounded once: the order of the numbers does not matter.

    Numbers are added up as integers, by their exponent. NaN and infinite ones are left out.

    >>> mean = ExactMean()
    >>> mean.update(np.array([1e100, 1.0, -1e100, np.nan]))
    >>> mean.value() == 1 / 3
    True
    """

    def __init__(self) -> None:
        self._n = 0
        self._high = [0] * _N_EXPONENTS
        self._low = [0] * _N_EXPONENTS

    def update(self, values: Float64) -> None:
        """Take in ``float64[n]``."""
        finite = values[np.isfinite(values)]
        self._n += len(finite)
        mantissas, exponents = np.frexp(finite)
        whole = np.ldexp(mantissas, _MANTISSA).astype(np.int64)
        places = exponents.astype(np.int64) - _LEAST
        # Sums of halves stay below 2**53, up to 2**26 numbers at a time: `bincount` adds them as floats without an error.
        for start in range(0, len(whole), 1 << 25):
            part, place = whole[start : start + (1 << 25)], places[start : start + (1 << 25)]
            for sums, halves in ((self._high, part >> _HALF), (self._low, part & ((1 << _HALF) - 1))):
                found = np.bincount(place, weights=halves.astype(np.float64))
                for i in np.flatnonzero(found).tolist():
                    sums[i] += int(found[i])

    def value(self) -> float:
        """The mean; 0 where there is no number."""
        if self._n == 0:
            return 0.0
        total = sum(
            ((high << _HALF) + low) << i for i, (high, low) in enumerate(zip(self._high, self._low, strict=True)) if high or low
        )
        return float(Fraction(total, self._n) * Fraction(2) ** (_LEAST - _MANTISSA))


class Median:
    """Median of numbers, which it keeps: 8 bytes of each. NaN and infinite ones are left out.

    >>> median = Median()
    >>> median.update(np.array([4.0, 1.0, np.inf, 2.0])); median.value()
    2.0
    """

    def __init__(self) -> None:
        self._parts: list[Float64] = []

    def update(self, values: Float64) -> None:
        """Take in ``float64[n]``."""
        self._parts.append(values[np.isfinite(values)])

    def value(self) -> float:
        """The median, of an even number the mean of the two in the middle; 0 where there is no number."""
        values = np.concatenate(self._parts) if self._parts else np.empty(0)
        if not len(values):
            return 0.0
        lower, upper = (float(np.partition(values, place)[place]) for place in ((len(values) - 1) // 2, len(values) // 2))
        return float((Fraction(lower) + Fraction(upper)) / 2)
