"""A uniform sample of everything seen so far."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray
from modyn_dagster.selection.sampler_state import State, checked_size, decoded, encoded, no_keys
from modyn_dagster.selection.time_biased.sampler import RandomSampler


class UniformReservoir(RandomSampler):
    """``n`` items (all while there are fewer), every subset of that size of the items so far equally likely, whatever their age.

    One number is drawn per item: cutting the stream into other batches changes nothing. ``elapsed`` is checked and has no effect.

    Args:
        n: size of the sample.
        seed: of the choices.

    Reference: Vitter, "Random Sampling with a Reservoir", ACM TOMS 1985, Algorithm R.
    """

    KIND: ClassVar[str] = "uniform_reservoir"

    def __init__(self, n: int, seed: int) -> None:
        self.n = checked_size(n)
        super().__init__(seed)
        self._keys = no_keys()
        self._n_seen = 0

    def sample(self) -> npt.NDArray[np.uint64]:
        """The sample now, ``uint64[size]``, a new array in no particular order; never more than ``n``."""
        return self._keys.copy()

    @property
    def n_seen(self) -> int:
        """Items so far."""
        return self._n_seen

    def rename(self, renamed: Callable[[KeyArray], KeyArray]) -> None:
        """Give items other keys; see ``Sampler``."""
        self._keys = renamed(self._keys)

    def _update(self, keys: KeyArray, elapsed: float) -> None:
        filling, others = np.split(keys, [max(0, self.n - self._n_seen)])
        self._keys = np.concatenate([self._keys, filling])
        self._n_seen += len(filling)
        # The item that is the i-th of the stream takes place floor(i * U) where there is one. Of several that take the
        # same place the last one stays: the order in which NumPy assigns.
        place = (self._rng.random(len(others)) * (self._n_seen + 1 + np.arange(len(others)))).astype(np.int64)
        taken = place < self.n
        self._keys[place[taken]] = others[taken]
        self._n_seen += len(others)

    def _content(self) -> State:
        return {"keys": encoded(self._keys), "n_seen": self._n_seen}

    def _load(self, state: Mapping[str, Any]) -> None:
        keys = decoded(state["keys"])
        if len(keys) != min(self.n, state["n_seen"]):
            raise ValueError(f"a state of {len(keys)} of {state['n_seen']} items does not belong to a sampler of size {self.n}")
        self._keys, self._n_seen = keys, state["n_seen"]
