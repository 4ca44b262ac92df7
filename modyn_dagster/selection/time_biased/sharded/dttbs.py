"""Distributed T-TBS: D-T-TBS, whose shards need no coordination."""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from modyn_dagster.distributed.protocols import Pool
from modyn_dagster.selection.sampler_state import checked_decay, checked_size
from modyn_dagster.selection.time_biased.sharded.shard import Step, Thin
from modyn_dagster.selection.time_biased.sharded.sharded_sampler import ShardedSampler
from modyn_dagster.selection.time_biased.ttbs import acceptance


class DTTBS(ShardedSampler):
    """T-TBS in shards: the same law as ``TTBS``, with other random choices.

    Every shard keeps each of its items with probability ``exp(-decay)`` per unit of time, and accepts each new one with
    probability ``q``. The size of the union moves towards ``n`` in expectation and has no bound.

    Args:
        n: size to hold in expectation, all shards together.
        decay: rate per unit of ``elapsed``, at least 0.
        mean_batch_size: items that arrive per unit of ``elapsed``, all shards together, in the mean.
        seed: of the choices.
        shards: their number; another number gives another sample of the same law.
        pool: makes the calls, one per shard; by default this process, one after the other.

    Raises:
        ValueError: ``q`` would exceed 1: items arrive too slowly to hold a sample of that size.

    Examples
    --------
    >>> sampler = DTTBS(n=1_000, decay=0.1, mean_batch_size=100, seed=0, shards=8)
    >>> round(sampler.q, 3)
    0.952

    Reference: Hentschel, Haas, Tian, EDBT 2018, §3 and §5.1.
    """

    KIND: ClassVar[str] = "d_ttbs"

    def __init__(self, n: int, decay: float, mean_batch_size: float, seed: int, *, shards: int, pool: Pool | None = None) -> None:
        self.n, self.decay = checked_size(n), checked_decay(decay)
        self.mean_batch_size = mean_batch_size
        self.q = acceptance(self.n, decay, mean_batch_size)
        super().__init__(seed, shards, pool)

    def sample(self) -> npt.NDArray[np.uint64]:
        """The sample now, ``uint64[size]``, a new array in no particular order."""
        return np.concatenate([shard.keys for shard in self._advanced()])

    def _decide(self, new: Sequence[int], elapsed: float, ordinal: int) -> Sequence[Sequence[Step]]:
        return [[Thin(math.exp(-self.decay * elapsed), self.q)]] * self.shards
