"""Coordinator of D-R-TBS: the serial algorithm with numbers of items in place of items."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from modyn_dagster.selection.sampler_state import State
from modyn_dagster.selection.time_biased.latent_sample import LatentSample
from modyn_dagster.selection.time_biased.sharded.shard import Append, Exchange, Keep, Lift, Release, Step

#: Largest number of items among which NumPy deals exactly (its hypergeometric distribution), excluded.
MOST_ITEMS: Final = 10**9


def deal(rng: np.random.Generator, sizes: Sequence[int], k: int) -> list[int]:
    """Numbers of items per shard if ``k`` of all are chosen uniformly: an exact multivariate hypergeometric draw.

    >>> deal(np.random.default_rng(0), [5, 0, 3], 8)
    [5, 0, 3]
    """
    if k in (0, sum(sizes)):
        return list(sizes) if k else [0] * len(sizes)
    return [int(n) for n in rng.multivariate_hypergeometric(sizes, k, method="marginals")]


class Coordinator(LatentSample[Sequence[int]]):
    """Decides how many items every shard lets go and takes in; it never sees an item.

    A batch is the number of its items per shard. The partial item is one more slot, which the coordinator assigns to a shard:
    the item stays on the shard it came to, as all others do.

    Args:
        n: largest size of the sample, below 10**9.
        decay: rate per unit of ``elapsed``, at least 0.
        shards: their number.

    Reference: Hentschel, Haas, Tian, EDBT 2018, §5.3, "Distributed decisions".
    """

    def __init__(self, n: int, decay: float, shards: int) -> None:
        super().__init__(n, decay)
        if self.n >= MOST_ITEMS:
            raise ValueError(f"n must be below {MOST_ITEMS:,} for a sample in shards, not {n!r}")
        self._sizes = [0] * shards
        self._owner: int | None = None
        self._steps: list[list[Step]] = []

    @property
    def owner(self) -> int | None:
        """The shard that has the partial item; None where there is none."""
        return self._owner

    @property
    def partial_is_in(self) -> bool:
        """True while the partial item is part of the sample."""
        return self._owner is not None and self._coin < self._fraction

    def decide(self, new: Sequence[int], elapsed: float, rng: np.random.Generator) -> list[list[Step]]:
        """Return the steps of every shard for a batch of which ``new[i]`` items came to shard ``i``.

        Raises:
            ValueError: more items at once than NumPy deals exactly.
        """
        if self._n_full + sum(new) >= MOST_ITEMS:
            raise ValueError(f"hand in a batch of {sum(new):,} keys in smaller parts, with no time elapsed between them")
        self._steps = [[] for _ in self._sizes]
        self._advance(new, sum(new), elapsed, rng)
        return self._steps

    def state(self) -> State:
        """Plain JSON; sizes and place of the partial item follow from the shards."""
        return {"fraction": self._fraction, "saturated": self._saturated, "coin": self._coin}

    def load_state(self, state: Mapping[str, Any], sizes: Sequence[int], owner: int | None) -> None:
        """Go on from there; ``ValueError`` where it cannot be the state of a sample of this size."""
        size = sum(sizes) + state["fraction"]
        is_full = state["saturated"] is None or sum(sizes) == self.n
        if size > self.n or not is_full or (owner is None and state["fraction"] > 0):
            raise ValueError(f"a state of size {size:g} does not belong to a sampler of size {self.n}")
        self._sizes, self._owner = list(sizes), owner
        self._fraction, self._saturated, self._coin = state["fraction"], state["saturated"], state["coin"]

    @property
    def _n_full(self) -> int:
        return sum(self._sizes)

    def _append(self, batch: Sequence[int]) -> None:
        for shard, n_new in enumerate(batch):
            if n_new:
                self._tell(shard, Append(), n_new)

    def _exchange(self, batch: Sequence[int], m: int, rng: np.random.Generator) -> None:
        leaving, entering = deal(rng, self._sizes, m), deal(rng, batch, m)
        for shard, (leave, enter) in enumerate(zip(leaving, entering, strict=True)):
            if leave or enter:
                self._tell(shard, Exchange(leave, enter), enter - leave)

    def _keep(self, k: int, rng: np.random.Generator) -> None:
        for shard, kept in enumerate(deal(rng, self._sizes, k)):
            if kept < self._sizes[shard]:
                self._tell(shard, Keep(kept), kept - self._sizes[shard])

    def _swap(self, rng: np.random.Generator) -> None:
        self._lift(rng, settles=True)

    def _move(self, rng: np.random.Generator) -> None:
        self._lift(rng, settles=False)

    def _lift(self, rng: np.random.Generator, *, settles: bool) -> None:
        """A shard, chosen by its number of full items, gives the partial one; the shard of the one before settles or drops it."""
        place = rng.integers(self._n_full)
        shard = int(np.searchsorted(np.cumsum(self._sizes), place, side="right"))
        if self._owner is not None and self._owner != shard:
            self._tell(self._owner, Release(settles), int(settles))
            self._tell(shard, Lift(settles), -1)
        else:
            self._tell(shard, Lift(settles), -1 + int(settles and self._owner is not None))
        self._owner = shard

    def _drop_partial(self) -> None:
        if self._owner is not None:
            self._tell(self._owner, Release(settles=False), 0)
            self._owner = None

    def _tell(self, shard: int, step: Step, change: int) -> None:
        self._steps[shard].append(step)
        self._sizes[shard] += change
