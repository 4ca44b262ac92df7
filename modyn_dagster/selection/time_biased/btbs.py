"""Bernoulli time-biased sampling: B-TBS."""

import math
from typing import ClassVar

import numpy as np

from modyn_dagster.keys import KeyArray
from modyn_dagster.selection.sampler_state import checked_decay
from modyn_dagster.selection.time_biased.sampler import ThinningSampler


class BTBS(ThinningSampler):
    """Accepts every item and keeps it with probability ``exp(-decay)`` per unit of time.

    An item of age ``a`` is in the sample with probability ``exp(-decay * a)``. The size follows from the stream and has no bound:
    for batches of ``b`` items it is about ``b / (1 - exp(-decay))``.

    Args:
        decay: rate per unit of ``elapsed``, at least 0; 0 keeps everything.
        seed: of the choices.

    Reference: Hentschel, Haas, Tian, EDBT 2018, §2 and Remark 1.
    """

    KIND: ClassVar[str] = "btbs"

    def __init__(self, decay: float, seed: int) -> None:
        self.decay = checked_decay(decay)
        super().__init__(seed)

    def _update(self, keys: KeyArray, elapsed: float) -> None:
        kept = self._thinned(self._keys, math.exp(-self.decay * elapsed))
        self._keys = np.concatenate([kept, keys])
