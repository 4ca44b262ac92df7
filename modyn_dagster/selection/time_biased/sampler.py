"""Base classes of stream samplers: checked input, and a state that is plain JSON.

A uniform subset of exact size is drawn fast enough for millions of positions.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray
from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.selection.sampler_state import State, checked_elapsed, checked_keys, decoded, encoded, no_keys

#: Below this share NumPy's own choice, which draws position by position, is faster than a look at all of them.
_SPARSE: Final = 1 / 64
_LEVELS: Final = 2**16


def uniform_positions(rng: np.random.Generator, n: int, k: int) -> npt.NDArray[np.int64]:
    """``k`` of the positions ``0..n-1``, ``int64[k]``, every subset of that size equally likely.

    A large share is drawn as one coin of 16 bits per position, biased to give a few too many, of which a uniform choice leaves
    again. That treats all positions alike, whatever the bias, so the result is exactly uniform.
    """
    if k >= n:
        return np.arange(n)
    if k < n * _SPARSE:
        return rng.choice(n, k, replace=False, shuffle=False)
    level = math.ceil(_LEVELS * (k + 4 * math.sqrt(k * (1 - k / n))) / n)
    if level >= _LEVELS:
        return np.delete(np.arange(n), rng.choice(n, n - k, replace=False, shuffle=False))
    while True:
        coins = rng.bit_generator.random_raw(n // 4 + 1).view(np.uint16)[:n]
        found = np.flatnonzero(coins < level)
        if len(found) >= k:
            return np.delete(found, rng.choice(len(found), len(found) - k, replace=False, shuffle=False))


class Sampler(ABC):
    """Takes the batches of a stream in order and keeps a sample of what it has seen.

    ``sample`` is a pure function of the state: whatever is left to chance is drawn in ``update``. A sampler that loads the
    state of another goes on exactly as the other would, if both were made with the same arguments (seeds may differ).
    """

    KIND: ClassVar[str]

    def update(self, keys: npt.NDArray[np.uint64], elapsed: float = 1.0) -> None:
        """Let what is kept grow older by ``elapsed``, then take in a batch.

        Args:
            keys: ``uint64[n]``, the items of the batch, maybe none. The array is not kept.
            elapsed: time since the batch before, in the unit of the decay rate; there is none before the first batch, so then
                it changes nothing.

        Raises:
            ValueError: ``elapsed`` is negative or not finite, or ``keys`` is not one row of unsigned 64-bit integers.
        """
        time = checked_elapsed(elapsed)
        self._update(checked_keys(keys), time)

    @abstractmethod
    def sample(self) -> npt.NDArray[np.uint64]:
        """The sample now, ``uint64[size]``, a new array in no particular order."""

    def state_dict(self) -> State:
        """Everything ``update`` and ``sample`` depend on, as plain JSON."""
        return {"kind": self.KIND, **self._content()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state_dict``. Raises ``ValueError`` when it is that of another kind of sampler, or cannot be one of
        a sampler with these arguments.
        """
        if state.get("kind") != self.KIND:
            raise ValueError(f"this is the state of {state.get('kind')!r}, not of {self.KIND!r}")
        self._load(state)

    @abstractmethod
    def rename(self, renamed: Callable[[KeyArray], KeyArray]) -> None:
        """Give items other keys, one for each of ``uint64[m]``; their places and chances stay, and nothing is drawn."""

    @abstractmethod
    def _update(self, keys: KeyArray, elapsed: float) -> None: ...

    @abstractmethod
    def _content(self) -> State: ...

    @abstractmethod
    def _load(self, state: Mapping[str, Any]) -> None: ...


class RandomSampler(Sampler):
    """A sampler that leaves something to chance; the state of its generator is part of its own."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._rng = rng_for(seed, self.KIND)

    def state_dict(self) -> State:
        """Everything ``update`` and ``sample`` depend on, as plain JSON."""
        return {**super().state_dict(), "rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state_dict``; see ``Sampler``."""
        super().load_state_dict(state)
        self._rng.bit_generator.state = state["rng"]

    def _chosen(self, keys: KeyArray, k: int) -> KeyArray:
        """``k`` of the keys, every subset of that size equally likely, in no particular order."""
        return keys[uniform_positions(self._rng, len(keys), k)]


class ThinningSampler(RandomSampler):
    """A sampler whose whole state is its sample, and which lets each item go independently of the others."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._keys = no_keys()

    def sample(self) -> npt.NDArray[np.uint64]:
        """The sample now, ``uint64[size]``, a new array in no particular order."""
        return self._keys.copy()

    def rename(self, renamed: Callable[[KeyArray], KeyArray]) -> None:
        """Give items other keys; see ``Sampler``."""
        self._keys = renamed(self._keys)

    def _thinned(self, keys: KeyArray, share: float) -> KeyArray:
        """Each key with probability ``share``: their number is binomial, which ones is a uniform choice."""
        return self._chosen(keys, int(self._rng.binomial(len(keys), share)))

    def _content(self) -> State:
        return {"keys": encoded(self._keys)}

    def _load(self, state: Mapping[str, Any]) -> None:
        self._keys = decoded(state["keys"])
