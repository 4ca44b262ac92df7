"""From the sample of an online strategy to the partitions of a training set."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fastpath import Partition
from modyn_dagster.keys import KeyArray
from modyn_dagster.randomness import hash_keys, seed_for
from modyn_dagster.selection.drawn import Drawn
from modyn_dagster.selection.rechunked import part_of
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
            self._whole = Partition(keys, 1 / Drawn(keys, equal, chances).chances)
        else:
            self._whole = Drawn(keys, equal, chances)

    def __iter__(self) -> Iterator[Partition]:
        """Partitions of ``partition_size`` keys in key order, the last maybe shorter."""
        size = self.spec.partition_size
        for start in range(0, len(self._whole.keys), size):
            yield part_of(self._whole, start, start + size)
