"""What a step on new data would hurt most: MIR."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray
from modyn_dagster.selection.memory.memory import NO_KEY, Memory, Values, check_elapsed, checked_keys, checked_values
from modyn_dagster.selection.time_biased import UniformReservoir
from modyn_dagster.selection.time_biased.sampler import State, checked_size, decoded, encoded, no_keys


class MIR(Memory):
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
    VALUES: ClassVar[frozenset[Values]] = frozenset({"gradients"})

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
        """What is new, and what it interferes with most; ties go to the smaller key."""
        if self._increase is None:
            return self._new.copy()
        worst = np.lexsort((self._keys, -self._increase))[: self.k]
        return np.concatenate([self._new, self._keys[worst]])

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
        self._new = np.concatenate([self._new, keys])
        if gradients is None:
            return
        n_old, n = len(self._keys), len(self._keys) + len(keys)
        rows = checked_values("gradients", gradients, n, 2)
        others = np.ones((n, 1)) if embeddings is None else checked_values("embeddings", embeddings, n, 2)
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
