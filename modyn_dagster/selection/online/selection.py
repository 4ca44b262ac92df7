"""Training sets of online strategies: inclusion probabilities of the sample, and its partitions."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fastpath import Partition
from modyn_dagster.keys import KeyArray
from modyn_dagster.reproducibility.randomness import hash_keys, seed_for
from modyn_dagster.selection.partitions import ProbabilityPartition, part_of
from modyn_dagster.selection.time_biased import BTBS, DRTBS, DTTBS, RTBS, TTBS, Sampler, UniformReservoir
from modyn_dagster.spec.selection import SelectionSpec


class OnlineSelection:
    """One trigger's selection; what ``Selection`` is for strategies that look at a window.

    Args:
        spec: limit and partition size.
        keys: the sample, ``uint64[m]``, ascending.
        chances: of each to be in it, ``float64[m]``; None where they are not known.
        n_pool: samples that the sample stands for.
        unbiased: weigh by ``1 / chance``, so that weighted sums are those of the pool in expectation; else all weigh
            ``n_pool / n_samples``, and the partitions tell the chances.
        seed: of the run.
        trigger: its ordinal.
    """

    def __init__(
        self,
        spec: SelectionSpec,
        keys: KeyArray,
        chances: npt.NDArray[np.float64] | None,
        *,
        n_pool: int,
        unbiased: bool,
        seed: int,
        trigger: int,
    ) -> None:
        self.spec = spec
        self.n_pool = n_pool
        if spec.limit is not None and len(keys) > spec.limit:
            order = np.argsort(hash_keys(keys, seed_for(seed, "limit", trigger)), kind="stable")
            kept = np.sort(order[: spec.limit])
            # A uniform part of what was chosen: every chance falls alike.
            chances = None if chances is None else chances[kept] * (spec.limit / len(keys))
            keys = keys[kept]
        equal = np.full(len(keys), n_pool / max(1, len(keys)), np.float32)
        if chances is None:
            self._whole = Partition(keys, equal)
        elif unbiased:
            self._whole = Partition(keys, 1 / ProbabilityPartition(keys, equal, chances).chances)
        else:
            self._whole = ProbabilityPartition(keys, equal, chances)

    def __iter__(self) -> Iterator[Partition]:
        """Partitions of ``partition_size`` keys in key order, the last maybe shorter."""
        size = self.spec.partition_size
        for start in range(0, len(self._whole.keys), size):
            yield part_of(self._whole, start, start + size)


Float64Array = npt.NDArray[np.float64]


def inclusion_probabilities(sampler: Sampler, ages: Float64Array) -> Float64Array:
    """Pr[item is in the sample] for items of these ``ages float64[m]``, in the unit of the sampler's ``elapsed``.

    R-TBS: ``(C / W) exp(-decay a)``; T-TBS: ``q exp(-decay a)``, both in shards or not; B-TBS: ``exp(-decay a)``; uniform
    reservoir: ``min(1, n / N)``; windows: 1.
    """
    if isinstance(sampler, UniformReservoir):
        return np.full(len(ages), min(1.0, sampler.n / max(1, sampler.n_seen)))
    if not isinstance(sampler, RTBS | DRTBS | TTBS | DTTBS | BTBS):
        return np.ones(len(ages))
    chances: Float64Array = _newest_probability(sampler) * np.exp(-sampler.decay * ages)
    return chances


def _newest_probability(sampler: RTBS | DRTBS | TTBS | DTTBS | BTBS) -> float:
    match sampler:
        case RTBS() | DRTBS():
            return sampler.fill * sampler.n / sampler.weight if sampler.weight else 1.0
        case TTBS() | DTTBS():
            return sampler.q
        case BTBS():
            return 1.0
