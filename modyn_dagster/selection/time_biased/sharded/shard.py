"""Shards of a sample: their items, and the steps that they are told to take."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray
from modyn_dagster.selection.sampler_state import no_keys
from modyn_dagster.selection.time_biased.sampler import uniform_positions

#: Part of a batch; keys that follow each other without a gap are a range, which travels as two numbers.
Batch = KeyArray | range


def compacted(keys: KeyArray) -> Batch:
    """Return a range where the keys are one, else a copy of them.

    >>> compacted(np.array([7, 8, 9], np.uint64)), compacted(np.array([7, 9, 8], np.uint64))
    (range(7, 10), array([7, 9, 8], dtype=uint64))
    """
    is_range = len(keys) > 0 and int(keys[-1]) - int(keys[0]) == len(keys) - 1 and bool((keys[1:] - keys[:-1] == 1).all())
    return range(int(keys[0]), int(keys[-1]) + 1) if is_range else keys.copy()


def picked(batch: Batch, positions: npt.NDArray[np.int64]) -> KeyArray:
    """Keys of a batch at some positions, ``uint64[k]``."""
    return positions.astype(np.uint64) + np.uint64(batch.start) if isinstance(batch, range) else batch[positions]


@dataclass
class Shard:
    """Items of one shard, in no particular order.

    Attributes:
        keys: full items, ``uint64[m]``.
        partial: the partial item of the whole sample, if it is here.
    """

    keys: KeyArray = field(default_factory=no_keys)
    partial: int | None = None

    def take_out(self, rng: np.random.Generator) -> int:
        """Remove a random full item and return it."""
        position = rng.integers(len(self.keys))
        key = int(self.keys[position])
        self.keys[position] = self.keys[-1]
        self.keys = self.keys[:-1]
        return key

    def put_back(self, key: int | None) -> None:
        """Add a full item, if there is one."""
        if key is not None:
            self.keys = np.append(self.keys, np.uint64(key))


class Step(ABC):
    """One change of a shard at an update; ``batch`` is the shard's part of the batch."""

    #: If the step needs the shard's part of the batch.
    READS_BATCH = False

    @abstractmethod
    def apply(self, shard: Shard, batch: Batch, rng: np.random.Generator) -> None:
        """Change the shard."""


@dataclass(frozen=True, slots=True)
class Append(Step):
    """All new items become full items."""

    READS_BATCH = True

    def apply(self, shard: Shard, batch: Batch, rng: np.random.Generator) -> None:
        """Change the shard."""
        shard.keys = np.concatenate([shard.keys, picked(batch, np.arange(len(batch)))])


@dataclass(frozen=True, slots=True)
class Exchange(Step):
    """``leave`` random full items leave, ``enter`` random new ones become full."""

    READS_BATCH = True

    leave: int
    enter: int

    def apply(self, shard: Shard, batch: Batch, rng: np.random.Generator) -> None:
        """Change the shard."""
        newcomers = picked(batch, uniform_positions(rng, len(batch), self.enter))
        victims = uniform_positions(rng, len(shard.keys), self.leave)
        n_replaced = min(self.leave, self.enter)
        shard.keys[victims[:n_replaced]] = newcomers[:n_replaced]
        if self.leave > n_replaced:
            shard.keys = np.delete(shard.keys, victims[n_replaced:])
        elif self.enter > n_replaced:
            shard.keys = np.concatenate([shard.keys, newcomers[n_replaced:]])


@dataclass(frozen=True, slots=True)
class Keep(Step):
    """``k`` random full items stay."""

    k: int

    def apply(self, shard: Shard, batch: Batch, rng: np.random.Generator) -> None:
        """Change the shard."""
        shard.keys = shard.keys[uniform_positions(rng, len(shard.keys), self.k)]


@dataclass(frozen=True, slots=True)
class Lift(Step):
    """A random full item becomes the partial one; the one before, if it is here, becomes full or leaves."""

    settles: bool

    def apply(self, shard: Shard, batch: Batch, rng: np.random.Generator) -> None:
        """Change the shard."""
        before, shard.partial = shard.partial, shard.take_out(rng)
        if self.settles:
            shard.put_back(before)


@dataclass(frozen=True, slots=True)
class Release(Step):
    """The partial item becomes full or leaves, as another shard has the partial one now, or none."""

    settles: bool

    def apply(self, shard: Shard, batch: Batch, rng: np.random.Generator) -> None:
        """Change the shard."""
        before, shard.partial = shard.partial, None
        if self.settles:
            shard.put_back(before)


@dataclass(frozen=True, slots=True)
class Thin(Step):
    """Every item stays with probability ``keep``, and every new one enters with probability ``accept``."""

    READS_BATCH = True

    keep: float
    accept: float

    def apply(self, shard: Shard, batch: Batch, rng: np.random.Generator) -> None:
        """Change the shard."""
        parts: tuple[tuple[Batch, float], ...] = ((shard.keys, self.keep), (batch, self.accept))
        kept = [picked(keys, _thinned(len(keys), share, rng)) for keys, share in parts]
        shard.keys = np.concatenate(kept)


def _thinned(n: int, share: float, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Positions, each with probability ``share``: their number is binomial, which ones is a uniform choice."""
    return uniform_positions(rng, n, int(rng.binomial(n, share)))
