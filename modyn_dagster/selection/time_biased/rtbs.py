"""Reservoir-based time-biased sampling: R-TBS."""

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray
from modyn_dagster.selection.sampler_state import State, checked_decay, checked_size, decoded, encoded, no_keys
from modyn_dagster.selection.time_biased.sampler import RandomSampler, uniform_positions


class RTBS(RandomSampler):
    """A sample that never exceeds ``n`` items and in which an item's chance decays with its age, whatever the batches' sizes.

    An item that arrived ``a`` ago has weight ``w = exp(-decay * a)``; W is the weight of all items so far and C = min(n, W).
    After every update ``Pr[i in S] = (C / W) * w``: two items' chances differ by nothing but their ages, and among all such
    samplers this one has the largest expected size and the smallest variance of it.

    The state is a *latent* sample of size C: floor(C) full items, and for the fraction of C one partial item, which is in
    the sample with that probability.

    Args:
        n: largest size of the sample.
        decay: rate per unit of ``elapsed``, at least 0; 0 forgets nothing (a uniform reservoir).
        seed: of the choices.

    Examples
    --------
    >>> sampler = RTBS(n=4, decay=math.log(2), seed=0)
    >>> sampler.update(np.arange(3, dtype=np.uint64))
    >>> sampler.update(np.empty(0, dtype=np.uint64), elapsed=1.0)
    >>> sampler.fill  # 3 items of weight 1/2 for 4 places
    0.375

    Reference: Hentschel, Haas, Tian, EDBT 2018, §4, Algorithms 2 and 3.
    """

    KIND: ClassVar[str] = "rtbs"

    def __init__(self, n: int, decay: float, seed: int) -> None:
        self.n = checked_size(n)
        self.decay = checked_decay(decay)
        super().__init__(seed)
        self._full = no_keys()
        self._partial: int | None = None
        # Unsaturated, W is len(full) + fraction; kept in two parts, so that rounding never disagrees with the number of items.
        self._fraction = 0.0
        # Total weight when saturated, None otherwise.
        self._saturated: float | None = None
        self._coin = 0.0

    @property
    def weight(self) -> float:
        """W, the decayed weight of all items so far."""
        return self._size if self._saturated is None else self._saturated

    @property
    def fill(self) -> float:
        """C / n: the share of its places that the sample can fill with data this fresh, between 0 and 1."""
        return self._size / self.n

    def sample(self) -> npt.NDArray[np.uint64]:
        """The sample now, ``uint64[size]``, a new array in no particular order; never more than ``n``."""
        if self._partial is None or self._coin >= self._fraction:
            return self._full.copy()
        return np.append(self._full, np.uint64(self._partial))

    def rename(self, renamed: Callable[[KeyArray], KeyArray]) -> None:
        """Give items other keys; see ``Sampler``."""
        self._full = renamed(self._full)
        if self._partial is not None:
            self._partial = int(renamed(np.array([self._partial], np.uint64))[0])

    @property
    def _size(self) -> float:
        """C, the size of the latent sample."""
        return len(self._full) + self._fraction

    def _update(self, keys: KeyArray, elapsed: float) -> None:
        decayed = self.weight * math.exp(-self.decay * elapsed)
        if self._saturated is not None and decayed + len(keys) >= self.n:
            self._replace(keys, decayed + len(keys))
        else:
            self._saturated = None
            self._downsample(decayed)
            self._accept(keys)
        self._coin = self._rng.random()

    def _replace(self, keys: KeyArray, weight: float) -> None:
        """Still saturated: new items take the places of random others."""
        expected = len(keys) * self.n / weight
        # Rounded up with the probability of its fraction; the sum never exceeds n, since weight is at least len(keys).
        m = min(int(expected + self._rng.random()), len(keys), self.n)
        self._full[uniform_positions(self._rng, self.n, m)] = self._chosen(keys, m)
        self._saturated = weight

    def _accept(self, keys: KeyArray) -> None:
        """Not saturated: take all, and cut back to n if that is too many."""
        self._full = np.concatenate([self._full, keys])
        if len(self._full) >= self.n:
            self._saturated = self._size
            self._downsample(float(self.n))
            # Only where the fraction is lost in the rounding of the size is there still something to drop.
            self._fraction, self._partial = 0.0, None

    def _downsample(self, target: float) -> None:
        """Scale every item's chance by ``target / C``: Algorithm 3, with U drawn on [0, 1)."""
        size, n_full, fraction = self._size, len(self._full), self._fraction
        if target >= size:
            return
        n_kept = int(target)
        self._fraction = target - n_kept
        u = self._rng.random()
        if n_kept == 0:
            if u >= fraction / size:
                self._swap()
            self._full = no_keys()
        elif n_kept == n_full:
            # The chance rho to stay partial solves rho * frac(C') + (1 - rho) = frac(C) * C' / C.
            if u > (1 - target / size * fraction) / (1 - self._fraction):
                self._swap()
        elif u < target / size * fraction:
            self._full = self._chosen(self._full, n_kept)
            self._swap()
        else:
            self._full = self._chosen(self._full, n_kept + 1)
            self._move()
        if self._fraction == 0.0:
            self._partial = None

    def _swap(self) -> None:
        """A random full item becomes partial, the partial one, if any, full."""
        before = self._partial
        self._move()
        if before is not None:
            self._full = np.append(self._full, np.uint64(before))

    def _move(self) -> None:
        """A random full item becomes partial, the partial one, if any, leaves."""
        position = self._rng.integers(len(self._full))
        self._partial = int(self._full[position])
        self._full[position] = self._full[-1]
        self._full = self._full[:-1]

    def _content(self) -> State:
        return {
            "full": encoded(self._full),
            "partial": self._partial,
            "fraction": self._fraction,
            "saturated": self._saturated,
            "coin": self._coin,
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        full = decoded(state["full"])
        if len(full) + state["fraction"] > self.n or (state["saturated"] is not None and len(full) != self.n):
            raise ValueError(f"a state of size {len(full) + state['fraction']:g} does not belong to a sampler of size {self.n}")
        self._full = full
        self._partial, self._fraction = state["partial"], state["fraction"]
        self._saturated, self._coin = state["saturated"], state["coin"]
