"""A memory that balances classes greedily: GDumb."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray
from modyn_dagster.selection.memory.memory import Memory, check_elapsed, checked_keys, checked_labels
from modyn_dagster.selection.sampler_state import State


class GDumb(Memory):
    """Accepts an item of a class while that has fewer than ``n / classes`` places; a full memory gives up a random one of the
    largest class for it. ``classes`` are those seen so far, the item's own included.

    Items are taken one after the other: cutting the stream into other batches changes nothing.

    >>> memory = GDumb(n=4, seed=0)
    >>> memory.update(np.arange(4, dtype=np.uint64), labels=np.zeros(4, np.int64))
    >>> memory.update(np.array([8, 9], dtype=np.uint64), labels=np.ones(2, np.int64))
    >>> [8 in memory.sample(), 9 in memory.sample(), len(memory.sample())]
    [True, True, 4]

    Reference: Prabhu, Torr, Dokania, "GDumb", ECCV 2020, Algorithm 1.
    """

    KIND: ClassVar[str] = "gdumb"

    def __init__(self, n: int, seed: int) -> None:
        super().__init__(n, seed)
        self._labels: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._classes: set[int] = set()

    def update(self, keys: npt.NDArray[np.uint64], labels: npt.ArrayLike, *, elapsed: float = 1.0) -> None:
        """Take in a batch: ``uint64[m]`` keys and their classes ``int64[m]``. ``elapsed`` is checked and has no effect.

        Raises ``ValueError`` for input of another shape or kind.
        """
        check_elapsed(elapsed)
        keys = checked_keys(keys)
        classes = checked_labels(labels, len(keys))
        kept, kept_labels = self._keys.tolist(), self._labels.tolist()
        counts = Counter(kept_labels)
        for key, label in zip(keys.tolist(), classes.tolist(), strict=True):
            self._classes.add(label)
            if counts[label] * len(self._classes) >= self.n:
                continue
            if len(kept) >= self.n:
                largest = max(counts.values())
                fullest = min(each for each, count in counts.items() if count == largest)
                places = [place for place, each in enumerate(kept_labels) if each == fullest]
                place = places[int(self._rng.integers(len(places)))]
                counts[fullest] -= 1
                kept[place], kept_labels[place] = key, label
            else:
                kept.append(key)
                kept_labels.append(label)
            counts[label] += 1
        self._keys, self._labels = np.array(kept, np.uint64), np.array(kept_labels, np.int64)

    def forget(self, gone: Callable[[KeyArray], npt.NDArray[np.bool_]]) -> None:
        """Let go of items; see ``Memory``."""
        there = ~gone(self._keys)
        self._keys, self._labels = self._keys[there], self._labels[there]

    def _content(self) -> State:
        return {"labels": self._labels.tolist(), "classes": sorted(self._classes)}

    def _load(self, state: Mapping[str, Any]) -> None:
        self._labels, self._classes = np.array(state["labels"], np.int64), set(state["classes"])
