"""Latent samples of R-TBS: size, weight, and the decisions of the algorithm, in numbers of items."""

import math
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

import numpy as np

from modyn_dagster.selection.sampler_state import checked_decay, checked_size

Batch = TypeVar("Batch")


class LatentSample(ABC, Generic[Batch]):
    """A sample of real-valued size C: floor(C) full items, and for its fraction one partial item.

    Algorithms 2 and 3 need numbers of items only. A subclass holds the items, in one place or in shards, and carries out the
    decisions. ``Batch`` is its form of a batch.

    Args:
        n: largest size of the sample.
        decay: rate per unit of ``elapsed``, at least 0.

    Reference: Hentschel, Haas, Tian, EDBT 2018, §4, Algorithms 2 and 3.
    """

    def __init__(self, n: int, decay: float) -> None:
        self.n = checked_size(n)
        self.decay = checked_decay(decay)
        # Unsaturated, W is the number of full items plus this; kept in two parts, so that rounding never disagrees with the
        # number of items.
        self._fraction = 0.0
        # Total weight when saturated, None otherwise.
        self._saturated: float | None = None
        # The partial item is in the sample while this is below the fraction.
        self._coin = 0.0

    @property
    def weight(self) -> float:
        """W, the decayed weight of all items so far."""
        return self._size if self._saturated is None else self._saturated

    @property
    def fill(self) -> float:
        """C / n: the share of its places that the sample can fill with data this fresh, between 0 and 1."""
        return self._size / self.n

    @property
    def _size(self) -> float:
        """C, the size of the latent sample."""
        return self._n_full + self._fraction

    def _advance(self, batch: Batch, n_new: int, elapsed: float, rng: np.random.Generator) -> None:
        """Algorithm 2: let the sample grow older, then take in a batch of ``n_new`` items."""
        decayed = self.weight * math.exp(-self.decay * elapsed)
        if self._saturated is not None and decayed + n_new >= self.n:
            self._replace(batch, n_new, decayed + n_new, rng)
        else:
            self._saturated = None
            self._downsample(decayed, rng)
            self._accept(batch, rng)
        self._coin = rng.random()

    def _replace(self, batch: Batch, n_new: int, weight: float, rng: np.random.Generator) -> None:
        """Still saturated: new items take the places of random others."""
        expected = n_new * self.n / weight
        # Rounded up with the probability of its fraction; the sum never exceeds n, since weight is at least n_new.
        self._exchange(batch, min(int(expected + rng.random()), n_new, self.n), rng)
        self._saturated = weight

    def _accept(self, batch: Batch, rng: np.random.Generator) -> None:
        """Not saturated: take all, and cut back to n if that is too many."""
        self._append(batch)
        if self._n_full >= self.n:
            self._saturated = self._size
            self._downsample(float(self.n), rng)
            # Only where the fraction is lost in the rounding of the size is there still something to drop.
            self._fraction = 0.0
            self._drop_partial()

    def _downsample(self, target: float, rng: np.random.Generator) -> None:
        """Scale every item's chance by ``target / C``: Algorithm 3, with U drawn on [0, 1)."""
        size, n_full, fraction = self._size, self._n_full, self._fraction
        if target >= size:
            return
        n_kept = int(target)
        self._fraction = target - n_kept
        u = rng.random()
        if n_kept == 0:
            if u >= fraction / size:
                self._swap(rng)
            self._keep(0, rng)
        elif n_kept == n_full:
            # The chance rho to stay partial solves rho * frac(C') + (1 - rho) = frac(C) * C' / C.
            if u > (1 - target / size * fraction) / (1 - self._fraction):
                self._swap(rng)
        elif u < target / size * fraction:
            self._keep(n_kept, rng)
            self._swap(rng)
        else:
            self._keep(n_kept + 1, rng)
            self._move(rng)
        if self._fraction == 0.0:
            self._drop_partial()

    @property
    @abstractmethod
    def _n_full(self) -> int:
        """Number of full items."""

    @abstractmethod
    def _append(self, batch: Batch) -> None:
        """All items of the batch become full items."""

    @abstractmethod
    def _exchange(self, batch: Batch, m: int, rng: np.random.Generator) -> None:
        """``m`` random items of the batch take the places of ``m`` random full items."""

    @abstractmethod
    def _keep(self, k: int, rng: np.random.Generator) -> None:
        """``k`` random full items stay, the others leave."""

    @abstractmethod
    def _swap(self, rng: np.random.Generator) -> None:
        """A random full item becomes partial, the partial one, if any, full."""

    @abstractmethod
    def _move(self, rng: np.random.Generator) -> None:
        """A random full item becomes partial, the partial one, if any, leaves."""

    @abstractmethod
    def _drop_partial(self) -> None:
        """The partial item, if any, leaves."""
