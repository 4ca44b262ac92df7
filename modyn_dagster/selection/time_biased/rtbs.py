"""Reservoir-based time-biased sampling: R-TBS."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray
from modyn_dagster.selection.sampler_state import State, decoded, encoded, no_keys
from modyn_dagster.selection.time_biased.latent_sample import LatentSample
from modyn_dagster.selection.time_biased.sampler import RandomSampler, uniform_positions


class RTBS(LatentSample[KeyArray], RandomSampler):
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
    >>> import math
    >>> sampler = RTBS(n=4, decay=math.log(2), seed=0)
    >>> sampler.update(np.arange(3, dtype=np.uint64))
    >>> sampler.update(np.empty(0, dtype=np.uint64), elapsed=1.0)
    >>> sampler.fill  # 3 items of weight 1/2 for 4 places
    0.375

    Reference: Hentschel, Haas, Tian, EDBT 2018, §4, Algorithms 2 and 3.
    """

    KIND: ClassVar[str] = "rtbs"

    def __init__(self, n: int, decay: float, seed: int) -> None:
        LatentSample.__init__(self, n, decay)
        RandomSampler.__init__(self, seed)
        self._full = no_keys()
        self._partial: int | None = None

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

    def _update(self, keys: KeyArray, elapsed: float) -> None:
        self._advance(keys, len(keys), elapsed, self._rng)

    @property
    def _n_full(self) -> int:
        return len(self._full)

    def _append(self, batch: KeyArray) -> None:
        self._full = np.concatenate([self._full, batch])

    def _exchange(self, batch: KeyArray, m: int, rng: np.random.Generator) -> None:
        self._full[uniform_positions(rng, self.n, m)] = self._chosen(batch, m)

    def _keep(self, k: int, rng: np.random.Generator) -> None:
        self._full = self._chosen(self._full, k) if k else no_keys()

    def _swap(self, rng: np.random.Generator) -> None:
        before = self._partial
        self._move(rng)
        if before is not None:
            self._full = np.append(self._full, np.uint64(before))

    def _move(self, rng: np.random.Generator) -> None:
        position = rng.integers(len(self._full))
        self._partial = int(self._full[position])
        self._full[position] = self._full[-1]
        self._full = self._full[:-1]

    def _drop_partial(self) -> None:
        self._partial = None

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
