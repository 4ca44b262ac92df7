"""Distributed R-TBS: D-R-TBS with distributed decisions and co-partitioned shards."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from modyn_dagster.distributed.protocols import Pool
from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.selection.sampler_state import State
from modyn_dagster.selection.time_biased.sharded.coordinator import Coordinator
from modyn_dagster.selection.time_biased.sharded.shard import Shard, Step
from modyn_dagster.selection.time_biased.sharded.sharded_sampler import ShardedSampler


class DRTBS(ShardedSampler):
    """R-TBS in shards: the same law as ``RTBS``, with other random choices.

    After every update ``Pr[i in S] = (C / W) * w`` holds on the union of the shards, however uneven their parts of the
    batches are, and the union never exceeds ``n``. A coordinator deals the numbers of items that go and come to the shards;
    each chooses uniformly among its own.

    Args:
        n: largest size of the sample, below 10**9.
        decay: rate per unit of ``elapsed``, at least 0.
        seed: of the choices.
        shards: their number; another number gives another sample of the same law.
        pool: makes the calls, one per shard; by default this process, one after the other.

    Examples
    --------
    >>> import math
    >>> sampler = DRTBS(n=4, decay=math.log(2), seed=0, shards=2)
    >>> sampler.update_parts([np.arange(3, dtype=np.uint64), np.empty(0, dtype=np.uint64)])
    >>> sampler.update(np.empty(0, dtype=np.uint64), elapsed=1.0)
    >>> sampler.fill  # 3 items of weight 1/2 for 4 places
    0.375

    Reference: Hentschel, Haas, Tian, EDBT 2018, §5.
    """

    KIND: ClassVar[str] = "d_rtbs"

    def __init__(self, n: int, decay: float, seed: int, *, shards: int, pool: Pool | None = None) -> None:
        super().__init__(seed, shards, pool)
        self._coordinator = Coordinator(n, decay, self.shards)
        self.n, self.decay = self._coordinator.n, self._coordinator.decay

    @property
    def weight(self) -> float:
        """W, the decayed weight of all items so far."""
        return self._coordinator.weight

    @property
    def fill(self) -> float:
        """C / n: the share of its places that the sample can fill with data this fresh, between 0 and 1."""
        return self._coordinator.fill

    def sample(self) -> npt.NDArray[np.uint64]:
        """The sample now, ``uint64[size]``, a new array in no particular order; never more than ``n``."""
        shards = self._advanced()
        parts = [shard.keys for shard in shards]
        if self._coordinator.partial_is_in:
            parts.append(np.array([shard.partial for shard in shards if shard.partial is not None], np.uint64))
        return np.concatenate(parts)

    def _decide(self, new: Sequence[int], elapsed: float, ordinal: int) -> Sequence[Sequence[Step]]:
        return self._coordinator.decide(new, elapsed, rng_for(self.seed, self.KIND, "coordinator", ordinal))

    def _content(self) -> State:
        return {**super()._content(), **self._coordinator.state()}

    def _load_decisions(self, state: Mapping[str, Any], held: Sequence[Shard]) -> None:
        owners = [i for i, shard in enumerate(held) if shard.partial is not None]
        if len(owners) > 1:
            raise ValueError(f"a state with partial items in shards {owners} does not belong to a sampler, which has one at most")
        self._coordinator.load_state(state, [len(shard.keys) for shard in held], next(iter(owners), None))
