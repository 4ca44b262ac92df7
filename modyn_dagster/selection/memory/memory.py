"""Base classes of replay memories: the values they ask for, checked input, and a state that is plain JSON."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray
from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.selection.sampler_state import NO_KEY, State, checked_size, decoded, encoded, no_keys

MemoryValue = Literal["losses", "gradients"]


class Needs(NamedTuple):
    """Values that an update needs first: ``values`` under the newest model for ``keys uint64[m]``, in this order."""

    keys: KeyArray
    values: frozenset[MemoryValue]


class Memory(ABC):
    """Takes the batches of a stream in order and keeps at most ``n`` items.

    ``sample`` is a pure function of the state: whatever is left to chance is drawn in ``update``. A memory that loads the
    state of another goes on exactly as the other would, if both were made with the same arguments (seeds may differ).

    Args:
        n: places.
        seed: of the choices.
    """

    KIND: ClassVar[str]
    VALUES: ClassVar[frozenset[MemoryValue]] = frozenset()
    #: Takes in a batch, ``update(keys, ..., elapsed=1.0)``, with what each memory wants to know of it in between.
    update: Callable[..., None]

    def __init__(self, n: int, seed: int) -> None:
        self.n = checked_size(n)
        self.seed = seed
        self._rng = rng_for(seed, self.KIND)
        self._keys = no_keys()

    @property
    def keys(self) -> KeyArray:
        """The items in the memory, ``uint64[m]``, in the order that ``needs`` names them."""
        return self._keys.copy()

    def sample(self) -> KeyArray:
        """Keys to train on, ``uint64[m]``: a new array in no particular order, each key once."""
        return self._keys.copy()

    def needs(self, keys: npt.NDArray[np.uint64]) -> Needs:
        """Values that ``update`` needs for this batch once there is a model: for the memory's keys, then for the batch's."""
        return Needs(np.concatenate([self._keys, checked_keys(keys)]) if self.VALUES else no_keys(), self.VALUES)

    @abstractmethod
    def forget(self, gone: Callable[[KeyArray], npt.NDArray[np.bool_]]) -> None:
        """Let go of the items of which ``gone`` says so, of ``uint64[m]`` ``bool[m]``; their places are free."""

    def state_dict(self) -> State:
        """Everything ``update`` and ``sample`` depend on, as plain JSON."""
        content = {"kind": self.KIND, "keys": encoded(self._keys), "rng": self._rng.bit_generator.state}
        return {**content, **self._content()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state_dict``. Raises ``ValueError`` when it is that of another kind of memory, or of a larger one."""
        if state.get("kind") != self.KIND:
            raise ValueError(f"this is the state of {state.get('kind')!r}, not of {self.KIND!r}")
        keys = decoded(state["keys"])
        if len(keys) > self.n:
            raise ValueError(f"a state of {len(keys)} items does not belong to a memory of {self.n}")
        self._keys = keys
        self._load(state)
        self._rng.bit_generator.state = state["rng"]

    @abstractmethod
    def _content(self) -> State: ...

    @abstractmethod
    def _load(self, state: Mapping[str, Any]) -> None: ...


def checked_keys(keys: npt.NDArray[np.uint64]) -> KeyArray:
    """A batch's keys; ``ValueError`` unless they are one row of unsigned 64-bit integers."""
    array = np.asarray(keys)
    if array.ndim != 1 or (array.size and array.dtype != np.uint64):
        raise ValueError(f"keys must be uint64[n], not {array.dtype}{list(array.shape)}")
    if array.size and array.max() == NO_KEY:
        raise ValueError("keys must lie below 2**64 - 1")
    return array.astype(np.uint64, copy=False)


def checked_labels(labels: npt.ArrayLike, n: int) -> npt.NDArray[np.int64]:
    """A class per key; ``ValueError`` for another number of them, or negative ones."""
    array = np.asarray(labels)
    if array.shape != (n,) or (n and array.dtype.kind not in "iu"):
        raise ValueError(f"labels must be whole numbers, one for each of {n} keys, not {array.dtype}{list(array.shape)}")
    if n and array.min() < 0:
        raise ValueError(f"labels must be classes from 0 on, not {array.min()}")
    return array.astype(np.int64)


def checked_values(name: str, values: npt.ArrayLike, n: int, n_dimensions: int) -> npt.NDArray[np.float64]:
    """A number or a row of them for each item; ``ValueError`` for another shape, or what is not finite."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != n_dimensions or len(array) != n:
        raise ValueError(f"{name} must belong to the {n} items that `needs` names, not have the shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite")
    return array


def check_elapsed(elapsed: float) -> None:
    """``ValueError`` for a time that is negative or not finite; no memory depends on it."""
    if not (math.isfinite(elapsed) and elapsed >= 0):
        raise ValueError(f"elapsed must be finite and not negative, not {elapsed!r}")


#: A gradient per row; of two factors the outer product of their rows.
Factors = list[npt.NDArray[np.float64]]


class GradientMemory(Memory):
    """Asks for the gradients of its own items and of the batch's under the newest model."""

    VALUES: ClassVar[frozenset[MemoryValue]] = frozenset({"gradients"})

    def update(
        self,
        keys: npt.NDArray[np.uint64],
        *,
        gradients: npt.ArrayLike | None = None,
        embeddings: npt.ArrayLike | None = None,
        elapsed: float = 1.0,
    ) -> None:
        """Take in a batch of ``uint64[m]`` keys. ``elapsed`` is checked and has no effect.

        ``gradients float[k, d]`` are those under the newest model of what ``needs(keys)`` names, None while there is no model;
        with ``embeddings float[k, e]`` each gradient is the outer product of the two rows, as that of a last layer is. Raises
        ``ValueError`` for input of another shape or kind.
        """
        check_elapsed(elapsed)
        keys = checked_keys(keys)
        if gradients is None:
            self._update(keys, [])
            return
        n, given = len(self._keys) + len(keys), {"gradients": gradients, "embeddings": embeddings}
        self._update(keys, [checked_values(name, values, n, 2) for name, values in given.items() if values is not None])

    @abstractmethod
    def _update(self, keys: KeyArray, factors: Factors) -> None:
        """Take in a batch; ``factors`` have a row for each item of the memory, then of the batch, or are none."""
