"""D-R-TBS with centralised decisions: the coordinator draws every position itself, and tells the shards.

Second best in Figure 7 of Hentschel, Haas, Tian (EDBT 2018), "Cent,CP": the items are in shards as in ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modyn_dagster.distributed.protocols import Pool
from modyn_dagster.selection.time_biased.sampler import uniform_positions
from modyn_dagster.selection.time_biased.sharded import DRTBS
from modyn_dagster.selection.time_biased.sharded.coordinator import Coordinator
from modyn_dagster.selection.time_biased.sharded.shard import Batch, Shard, Step, picked

Positions = npt.NDArray[np.int64]


def positions_by_shard(sizes: Sequence[int], k: int, rng: np.random.Generator) -> list[Positions]:
    """``k`` of all positions, chosen uniformly, as ascending positions inside each shard."""
    ends = np.cumsum(sizes)
    chosen = np.sort(uniform_positions(rng, int(ends[-1]), k))
    parts = np.split(chosen, np.searchsorted(chosen, ends[:-1]))
    return [part - (end - size) for part, end, size in zip(parts, ends, sizes, strict=True)]


@dataclass(frozen=True, slots=True)
class ExchangeAt(Step):
    """Items at some positions of the shard leave, new ones at some positions of its part of the batch enter."""

    READS_BATCH = True

    leave: Positions
    enter: Positions

    def apply(self, shard: Shard, batch: Batch, rng: np.random.Generator) -> None:
        shard.keys = np.concatenate([np.delete(shard.keys, self.leave), picked(batch, self.enter)])


@dataclass(frozen=True, slots=True)
class KeepAt(Step):
    """Items at some positions stay."""

    positions: Positions

    def apply(self, shard: Shard, batch: Batch, rng: np.random.Generator) -> None:
        shard.keys = shard.keys[self.positions]


class CentralCoordinator(Coordinator):
    """Draws positions where ``Coordinator`` deals counts."""

    def _exchange(self, batch: Sequence[int], m: int, rng: np.random.Generator) -> None:
        leaving, entering = positions_by_shard(self._sizes, m, rng), positions_by_shard(batch, m, rng)
        for shard, (leave, enter) in enumerate(zip(leaving, entering, strict=True)):
            if len(leave) or len(enter):
                self._tell(shard, ExchangeAt(leave, enter), len(enter) - len(leave))

    def _keep(self, k: int, rng: np.random.Generator) -> None:
        for shard, kept in enumerate(positions_by_shard(self._sizes, k, rng)):
            if len(kept) < self._sizes[shard]:
                self._tell(shard, KeepAt(kept), len(kept) - self._sizes[shard])


class CentralDRTBS(DRTBS):
    """``DRTBS`` with another coordinator; the same law."""

    def __init__(self, n: int, decay: float, seed: int, *, shards: int, pool: Pool | None = None) -> None:
        super().__init__(n, decay, seed, shards=shards, pool=pool)
        self._coordinator = CentralCoordinator(n, decay, self.shards)
