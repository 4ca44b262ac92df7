"""MIR (maximally interfered retrieval): samples that a step on new data would hurt most."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray
from modyn_dagster.selection.memory.memory import Factors, GradientMemory
from modyn_dagster.selection.sampler_state import NO_KEY, State, checked_size, decoded, encoded, no_keys
from modyn_dagster.selection.time_biased import UniformReservoir


class MIR(GradientMemory):
    """Everything new, and of a memory of earlier items the ``k`` with which it interferes most.

    The memory is a uniform reservoir of ``n`` items. A virtual step of gradient descent on the new items changes the loss of
    item m by ``-rate * g_m . g`` to first order, with g their mean gradient: those with the largest increase are retrieved.
    What is new goes into the memory with ``learnt()``, once a model was trained on the sample. Without gradients, which is before
    there is a model, none is retrieved.

    Args:
        n: places of the memory.
        k: items to retrieve, at most n.
        seed: of the choices.

    Reference: Aljundi et al., "Online Continual Learning with Maximally Interfered Retrieval", NeurIPS 2019, §3.1. There the
    step is taken with the whole network for every mini-batch; here its first order decides, for all that came since the
    last model.
    """

    KIND: ClassVar[str] = "mir"

    def __init__(self, n: int, k: int, seed: int) -> None:
        super().__init__(n, seed)
        if not 1 <= k <= n:
            raise ValueError(f"k must lie between 1 and n = {n}, not {k!r}")
        self.k = checked_size(k)
        self._reservoir = UniformReservoir(n, seed)
        self._new = no_keys()
        #: By item of the memory, how much its loss grows: not yet known while None.
        self._increase: npt.NDArray[np.float64] | None = None

    def sample(self) -> KeyArray:
        """New samples, and those they interfere with most; ties go to the smaller key."""
        if self._increase is None:
            return self._new.copy()
        worst = np.lexsort((self._keys, -self._increase))[: self.k]
        return np.concatenate([self._new, self._keys[worst]])

    def _update(self, keys: KeyArray, factors: Factors) -> None:
        self._new = np.concatenate([self._new, keys])
        if not factors:
            return
        n_old, rows = len(self._keys), factors[0]
        others = factors[1] if len(factors) == 2 else np.ones((len(rows), 1))
        step = rows[n_old:].T @ others[n_old:]
        # The sum over all that is new: dividing it by their number changes no order.
        increase = -np.einsum("md,de,me->m", rows[:n_old], step, others[:n_old], optimize=True)
        self._increase = increase if self._increase is None else self._increase + increase

    def learnt(self) -> None:
        """A model was trained on the sample: what was new is now of the past, and the next gradients are of that model."""
        self._reservoir.update(self._new)
        there = self._reservoir.sample()
        self._keys, self._new, self._increase = there[there != NO_KEY], no_keys(), None

    def forget(self, gone: Callable[[KeyArray], npt.NDArray[np.bool_]]) -> None:
        """Let go of items; see ``Memory``. Their places stay empty until new ones take them."""
        there = ~gone(self._keys)
        if self._increase is not None:
            self._increase = self._increase[there]
        self._keys, self._new = self._keys[there], self._new[~gone(self._new)]
        self._reservoir.rename(lambda keys: np.where((keys != NO_KEY) & gone(keys), NO_KEY, keys))

    def _content(self) -> State:
        increase = None if self._increase is None else self._increase.tolist()
        return {"new": encoded(self._new), "increase": increase, "reservoir": self._reservoir.state_dict()}

    def _load(self, state: Mapping[str, Any]) -> None:
        self._new = decoded(state["new"])
        self._increase = None if state["increase"] is None else np.array(state["increase"], np.float64)
        self._reservoir.load_state_dict(state["reservoir"])
