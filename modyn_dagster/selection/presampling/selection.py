"""From the keys of a window to the partitions of a training set."""

from collections.abc import Iterable, Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from fastpath import Partition
from modyn_dagster.errors import SelectionError
from modyn_dagster.keys import KeyArray
from modyn_dagster.reproducibility.randomness import rng_for, seed_for
from modyn_dagster.selection.partitions import ProbabilityPartition, rechunk
from modyn_dagster.selection.presampling.groups import Groups, History, columns_of, quotas_of
from modyn_dagster.selection.presampling.pool import count, repeatable
from modyn_dagster.selection.presampling.systematic import Systematic
from modyn_dagster.selection.presampling.thresholds import thresholds
from modyn_dagster.selection.quotas import Int64Array
from modyn_dagster.spec.selection import (
    AllSpec,
    SelectionSpec,
    Strategy,
    UniformWithoutReplacementSpec,
    WeightedSpec,
)
from modyn_dagster.spec.strategies.sized import Sized, Weighing


class Selection:
    """One trigger's selection: iterate it once, then ask for ``n_pool``.

    Weights are on one scale: the expectation of ``sum(weight * value)`` over the training set is the sum over the pool, so a
    key kept with probability p weighs ``1 / p``; where the spec asks for ``weights: equal`` all weigh ``n_pool / n_samples``,
    and partitions tell the probabilities (``Drawn``).
    A group that gives no sample is represented by none.

    The result depends on seed, trigger, pool and history alone: not on the backend that reads the pool, and not on the
    partition size. Memory is bounded by the partition size and the number of groups.

    Args:
        spec: what to keep.
        pool: keys of the window in key order, in chunks; read several times by all strategies but ``all`` without a limit.
            Strategies that look at more than keys need it to have ``Columns``.
        seed: of the run.
        trigger: its ordinal.
        history: of the run.

    Raises:
        SelectionError: while iterating, when the pool lacks what the strategy needs or changes between two passes.
    """

    def __init__(
        self, spec: SelectionSpec, pool: Iterable[KeyArray], *, seed: int, trigger: int, history: History | None = None
    ) -> None:
        self.spec = spec
        self.strategy = strategy_at(spec, trigger)
        self.n_pool = 0
        self._pool = pool
        self._history = history or History()
        # All strategies hash with one salt: of the same groups a larger quota then keeps what a smaller one kept.
        self._salt = seed_for(seed, "limit", trigger)
        self._start = float(rng_for(seed, "weighted", trigger).random())

    def __iter__(self) -> Iterator[Partition]:
        """Partitions of ``partition_size`` keys in key order, the last maybe shorter."""
        if isinstance(self.strategy, AllSpec) and self.spec.limit is None:
            parts = self._everything()
        elif isinstance(self.strategy, WeightedSpec):
            parts = self._weighted(self.strategy)
        else:
            parts = self._grouped()
        return rechunk(parts, self.spec.partition_size)

    def _everything(self) -> Iterator[Partition]:
        for keys in self._pool:
            self.n_pool += len(keys)
            yield Partition(keys, np.ones(len(keys), np.float32))

    def _grouped(self) -> Iterator[Partition]:
        groups = Groups(self.strategy, repeatable(self._pool), self._history)
        self.n_pool = int(groups.counts.sum())
        quotas = quotas_of(self.strategy, groups.counts, self._target())
        chosen = thresholds(groups, groups.counts, quotas, self._salt)
        weights = self._group_weights(groups.counts, quotas)
        chances = self._group_chances(groups.counts, quotas)
        n_chosen = 0
        for keys, numbers in groups():
            kept = chosen.chosen(keys, numbers)
            kept_keys = keys[kept]
            n_chosen += len(kept_keys)
            if numbers is None:
                yield Partition(kept_keys, np.full(len(kept_keys), weights[0]))
            elif chances is None:
                yield Partition(kept_keys, weights[numbers[kept]])
            else:
                yield ProbabilityPartition(kept_keys, weights[numbers[kept]], chances[numbers[kept]])
        if n_chosen != quotas.sum():
            raise SelectionError(f"{n_chosen} keys were chosen instead of {quotas.sum()}: the window changed meanwhile")

    def _group_weights(self, counts: Int64Array, quotas: Int64Array) -> npt.NDArray[np.float32]:
        # Which samples were used least often was left to chance too: over the triggers all have the same chance.
        if self._weighs_equally or isinstance(self.strategy, UniformWithoutReplacementSpec):
            return np.full(len(counts), counts.sum() / max(1, int(quotas.sum())), np.float32)
        return np.divide(counts, np.maximum(quotas, 1), dtype=np.float32)

    def _group_chances(self, counts: Int64Array, quotas: Int64Array) -> npt.NDArray[np.float32] | None:
        """Inclusion probabilities by group, where weights are not their inverses; otherwise None."""
        return np.divide(quotas, np.maximum(counts, 1), dtype=np.float32) if self._weighs_equally else None

    @property
    def _weighs_equally(self) -> bool:
        return isinstance(self.strategy, Weighing) and self.strategy.weights == "equal"

    def _weighted(self, strategy: WeightedSpec) -> Iterator[Partition]:
        pool = repeatable(self._pool)
        columns = columns_of(pool)
        self.n_pool = count(pool)
        target = self._target()
        if target == 0:
            return
        chosen = Systematic(lambda: columns.scores(strategy.attribute, strategy.expression), target, self._start)
        equal = self.n_pool / max(1, chosen.n_kept)
        for keys, chance in chosen:
            if strategy.weights == "equal":
                yield ProbabilityPartition(keys, np.full(len(keys), equal, np.float32), chance)
            else:
                yield Partition(keys, (1 / chance).astype(np.float32))

    def _target(self) -> int:
        return target_size(self.strategy, self.spec.limit, self.n_pool)


def target_size(strategy: Strategy, limit: int | None, n_pool: int) -> int:
    """Number of samples that a strategy selects: at most the pool's size, and at least one of a pool that has any.

    >>> from modyn_dagster.spec.selection import UniformSpec
    >>> target_size(UniformSpec(kind="uniform", ratio=0.29), None, 100)
    29
    """
    wanted = n_pool
    if isinstance(strategy, Sized):
        # The ratio as it is written, not as the binary fraction next to it: 0.29 of 100 is 29.
        share = int(Fraction(str(strategy.ratio or 1)) * n_pool)
        wanted = min(wanted, strategy.size or max(1, share))
    return wanted if limit is None else min(wanted, limit)


def strategy_at(spec: SelectionSpec, trigger: int) -> Strategy:
    """The strategy of a trigger, counted from 0: everything while warming up, then that of the schedule."""
    if trigger < spec.warmup_triggers:
        return AllSpec()
    begun = [stage.strategy for stage in spec.schedule if stage.from_trigger <= trigger]
    return begun[-1] if begun else spec.strategy
