"""From the keys of a window to the partitions of a training set."""

from collections.abc import Iterable, Iterator

import numpy as np

from fastpath import Partition
from modyn_dagster.keys import KeyArray
from modyn_dagster.randomness import seed_for
from modyn_dagster.selection.uniform import UniformLimit, rechunked
from modyn_dagster.spec.selection import SelectionSpec


class Selection:
    """One trigger's selection: iterate it once, then ask for ``n_pool``.

    Weights are on one scale: the expectation of ``sum(weight * value)`` over the training set is the sum over the pool, so a
    key kept with probability ``limit / n_pool`` weighs ``n_pool / limit``.
    """

    def __init__(self, spec: SelectionSpec, keys: Iterable[KeyArray], *, seed: int, trigger: int) -> None:
        self.spec = spec
        self.n_pool = 0
        self._keys = keys
        self._salt = seed_for(seed, "limit", trigger)

    def __iter__(self) -> Iterator[Partition]:
        """Partitions of ``partition_size`` keys in key order, the last maybe shorter."""
        chosen: Iterable[KeyArray] = self._counted()
        weight = 1.0
        if self.spec.limit is not None:
            chosen, weight = self._limited(self.spec.limit)
        for keys in rechunked(chosen, self.spec.partition_size):
            yield Partition(keys, np.full(len(keys), weight, dtype=np.float32))

    def _counted(self) -> Iterator[KeyArray]:
        for keys in self._keys:
            self.n_pool += len(keys)
            yield keys

    def _limited(self, limit: int) -> tuple[Iterable[KeyArray], float]:
        subset = UniformLimit(limit, self._salt)
        for keys in self._keys:
            subset.add(keys)
        self.n_pool = subset.n_seen
        selected = subset.selected()
        weight = self.n_pool / len(selected) if len(selected) else 1.0
        return [selected], weight
