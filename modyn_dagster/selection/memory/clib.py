"""A class-balanced memory of what lowers losses most: CLIB."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray
from modyn_dagster.selection.memory.memory import Memory, MemoryValue, check_elapsed, checked_keys, checked_labels, checked_values
from modyn_dagster.selection.quotas import balanced
from modyn_dagster.selection.sampler_state import State


class CLIB(Memory):
    """Items whose loss training lowers most, as equal numbers of every class as possible.

    An item's score is an exponential moving average of how much its loss fell from one model to the next; it begins at the
    mean of its class, and where that is new at the mean of the memory. A memory that is too full gives up the lowest score of the
    most frequent class, new items counted, until it fits; ties are broken at random.

    Args:
        n: places.
        seed: of the choices.
        momentum: weight of the past in the average, in [0, 1).

    Reference: Koh et al., "Online Continual Learning on Class Incremental Blurry Task Configuration", ICLR 2022, §4.1. There an
    item is credited with what the whole memory's loss fell by when it was in a mini-batch; here models come trigger by
    trigger and are trained on the whole memory, so each item is credited with what its own loss fell by.
    """

    KIND: ClassVar[str] = "clib"
    VALUES: ClassVar[frozenset[MemoryValue]] = frozenset({"losses"})

    def __init__(self, n: int, seed: int, momentum: float = 0.9) -> None:
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must lie in [0, 1), not {momentum!r}")
        super().__init__(n, seed)
        self.momentum = momentum
        self._labels: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._scores = np.empty(0)
        #: NaN where no model has looked at an item yet.
        self._losses = np.empty(0)

    def update(
        self,
        keys: npt.NDArray[np.uint64],
        labels: npt.ArrayLike,
        *,
        losses: npt.ArrayLike | None = None,
        elapsed: float = 1.0,
    ) -> None:
        """Take in a batch of ``uint64[m]`` keys with classes ``int64[m]``. ``elapsed`` is checked and has no effect.

        ``losses`` are those under the newest model of what ``needs(keys)`` names; None while there is no model. Raises
        ``ValueError`` for input of another shape or kind.
        """
        check_elapsed(elapsed)
        keys = checked_keys(keys)
        classes = checked_labels(labels, len(keys))
        now = np.full(len(self._keys) + len(keys), np.nan)
        if losses is not None:
            now = checked_values("losses", losses, len(now), 1)
            self._learn(now[: len(self._keys)])
        scores = np.concatenate([self._scores, self._beginnings(classes)])
        self._keep(np.concatenate([self._keys, keys]), np.concatenate([self._labels, classes]), scores, now)

    def forget(self, gone: Callable[[KeyArray], npt.NDArray[np.bool_]]) -> None:
        """Let go of items; see ``Memory``."""
        there = ~gone(self._keys)
        self._keys, self._labels = self._keys[there], self._labels[there]
        self._scores, self._losses = self._scores[there], self._losses[there]

    def _learn(self, now: npt.NDArray[np.float64]) -> None:
        # A loss that is the same to the last bit is that of the same model: nothing was learnt in between.
        learnt = np.isfinite(self._losses) & (now != self._losses)
        fallen = self._losses[learnt] - now[learnt]
        self._scores[learnt] = self.momentum * self._scores[learnt] + (1 - self.momentum) * fallen

    def _beginnings(self, classes: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        found = np.full(len(classes), self._scores.mean() if len(self._scores) else 0.0)
        for label in np.unique(classes).tolist():
            known = self._scores[self._labels == label]
            if len(known):
                found[classes == label] = known.mean()
        return found

    def _keep(
        self,
        keys: KeyArray,
        labels: npt.NDArray[np.int64],
        scores: npt.NDArray[np.float64],
        losses: npt.NDArray[np.float64],
    ) -> None:
        _, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
        # Giving up one of the largest class after the other ends where water-filling does.
        quotas = balanced(counts, min(self.n, len(keys)), "exact")
        order = np.lexsort((self._rng.random(len(keys)), -scores, numbers))
        rank = np.arange(len(keys)) - np.repeat(np.cumsum(counts) - counts, counts)
        kept = np.sort(order[rank < np.repeat(quotas, counts)])
        self._keys, self._labels, self._scores, self._losses = keys[kept], labels[kept], scores[kept], losses[kept]

    def _content(self) -> State:
        losses = [None if np.isnan(loss) else loss for loss in self._losses.tolist()]
        return {"labels": self._labels.tolist(), "scores": self._scores.tolist(), "losses": losses}

    def _load(self, state: Mapping[str, Any]) -> None:
        self._labels, self._scores = np.array(state["labels"], np.int64), np.array(state["scores"], np.float64)
        self._losses = np.array([np.nan if loss is None else loss for loss in state["losses"]], np.float64)
