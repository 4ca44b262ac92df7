"""What all samplers of a stream share: checked input, and a state that is plain JSON."""

import base64
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray
from modyn_dagster.randomness import rng_for
from modyn_dagster.selection.time_biased.subset import uniform_positions

State = dict[str, Any]


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
        if not (math.isfinite(elapsed) and elapsed >= 0):
            raise ValueError(f"elapsed must be finite and not negative, not {elapsed!r}")
        self._update(_checked_keys(keys), float(elapsed))

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


def encoded(keys: KeyArray) -> str:
    """Keys as text: base64 of their little-endian bytes."""
    return base64.b64encode(keys.astype("<u8", copy=False).tobytes()).decode("ascii")


def decoded(text: str) -> KeyArray:
    """The keys that ``encoded`` wrote."""
    return np.frombuffer(base64.b64decode(text, validate=True), dtype="<u8").astype(np.uint64)


def no_keys() -> KeyArray:
    """``uint64[0]``."""
    return np.empty(0, dtype=np.uint64)


def checked_size(n: int) -> int:
    """A size of a sample; ``ValueError`` below 1, or for what is no whole number."""
    if not (math.isfinite(n) and n == int(n) and n >= 1):
        raise ValueError(f"n must be at least 1 and a whole number, not {n!r}")
    return int(n)


def checked_decay(decay: float) -> float:
    """A decay rate; ``ValueError`` when it is negative or not finite."""
    if not (math.isfinite(decay) and decay >= 0):
        raise ValueError(f"decay must be finite and not negative, not {decay!r}")
    return decay


def _checked_keys(keys: npt.NDArray[np.uint64]) -> KeyArray:
    array = np.asarray(keys)
    if array.ndim != 1:
        raise ValueError(f"keys must have one dimension, not shape {array.shape}")
    if array.size == 0:
        return no_keys()
    if array.dtype.kind not in "iu" or (array.dtype.kind == "i" and array.min() < 0):
        raise ValueError(f"keys must be unsigned 64-bit integers, not {array.dtype} with the smallest {array.min()}")
    return array.astype(np.uint64, copy=False)
