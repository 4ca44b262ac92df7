"""Targeted-size time-biased sampling: T-TBS."""

import math
from typing import ClassVar, Final

import numpy as np

from modyn_dagster.keys import KeyArray
from modyn_dagster.selection.sampler_state import checked_decay, checked_size
from modyn_dagster.selection.time_biased.sampler import ThinningSampler

#: A mean batch size that was computed to make q 1 may come out a hair too small.
_ROUNDING: Final = 1e-9


def acceptance(n: int, decay: float, mean_batch_size: float) -> float:
    """The probability ``q = n (1 - exp(-decay)) / mean_batch_size`` with which T-TBS accepts a new item.

    Raises:
        ValueError: ``mean_batch_size`` is not positive, or ``q`` would exceed 1.

    >>> round(acceptance(1_000, 0.1, 100), 3)
    0.952
    """
    if not (math.isfinite(mean_batch_size) and mean_batch_size > 0):
        raise ValueError(f"mean_batch_size must be finite and positive, not {mean_batch_size!r}")
    leaving = -n * math.expm1(-decay)
    if leaving > mean_batch_size * (1 + _ROUNDING):
        raise ValueError(
            f"mean_batch_size must be at least n (1 - exp(-decay)) = {leaving:.6g}, or items leave faster than they arrive "
            f"(found {mean_batch_size!r})"
        )
    return min(1.0, leaving / mean_batch_size)


class TTBS(ThinningSampler):
    """Keeps every item with probability ``exp(-decay)`` per unit of time and accepts new ones with probability ``q``.

    With ``q = n (1 - exp(-decay)) / mean_batch_size`` the expected size moves towards ``n`` while the mean batch size is what was
    promised: ``E[C_t] = n + exp(-decay * t) * (C_0 - n)``. The size itself has no bound. Use ``RTBS`` where arrivals vary.

    Args:
        n: size to hold in expectation.
        decay: rate per unit of ``elapsed``, at least 0.
        mean_batch_size: items that arrive per unit of ``elapsed``, in the mean.
        seed: of the choices.

    Raises:
        ValueError: ``q`` would exceed 1: items arrive too slowly to hold a sample of that size.

    Reference: Hentschel, Haas, Tian, EDBT 2018, §3, Algorithm 1 and Theorem 3.1.
    """

    KIND: ClassVar[str] = "ttbs"

    def __init__(self, n: int, decay: float, mean_batch_size: float, seed: int) -> None:
        self.n = checked_size(n)
        self.decay = checked_decay(decay)
        self.mean_batch_size = mean_batch_size
        self.q = acceptance(self.n, decay, mean_batch_size)
        super().__init__(seed)

    def _update(self, keys: KeyArray, elapsed: float) -> None:
        kept = self._thinned(self._keys, math.exp(-self.decay * elapsed))
        self._keys = np.concatenate([kept, self._thinned(keys, self.q)])
