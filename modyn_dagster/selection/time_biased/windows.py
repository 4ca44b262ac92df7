"""Sliding windows: the newest items alone, by number or by age."""

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray
from modyn_dagster.selection.sampler_state import State, checked_size, decoded, encoded, no_keys
from modyn_dagster.selection.time_biased.sampler import Sampler


class SlidingWindow(Sampler):
    """The last ``n`` items of the stream. ``elapsed`` is checked and has no effect.

    >>> window = SlidingWindow(3)
    >>> window.update(np.arange(5, dtype=np.uint64))
    >>> window.sample()
    array([2, 3, 4], dtype=uint64)
    """

    KIND: ClassVar[str] = "sliding_window"

    def __init__(self, n: int) -> None:
        self.n = checked_size(n)
        self._keys = no_keys()

    def sample(self) -> npt.NDArray[np.uint64]:
        """The window now, ``uint64[size]``, a new array in order of arrival; never more than ``n``."""
        return self._keys.copy()

    def rename(self, renamed: Callable[[KeyArray], KeyArray]) -> None:
        """Give items other keys; see ``Sampler``."""
        self._keys = renamed(self._keys)

    def _update(self, keys: KeyArray, elapsed: float) -> None:
        self._keys = np.concatenate([self._keys, keys[-self.n :]])[-self.n :]

    def _content(self) -> State:
        return {"keys": encoded(self._keys)}

    def _load(self, state: Mapping[str, Any]) -> None:
        keys = decoded(state["keys"])
        if len(keys) > self.n:
            raise ValueError(f"a state of {len(keys)} items does not belong to a window of {self.n}")
        self._keys = keys


class TimeWindow(Sampler):
    """The items younger than ``span``: what arrived in ``(now - span, now]``. Its size has no bound.

    Args:
        span: in the unit of ``elapsed``, positive.

    >>> window = TimeWindow(span=2.0)
    >>> for key, elapsed in [(1, 1.0), (2, 1.5), (3, 0.5)]:
    ...     window.update(np.array([key], dtype=np.uint64), elapsed)
    >>> window.sample()
    array([2, 3], dtype=uint64)
    """

    KIND: ClassVar[str] = "time_window"

    def __init__(self, span: float) -> None:
        if not (math.isfinite(span) and span > 0):
            raise ValueError(f"span must be finite and positive, not {span!r}")
        self.span = span
        self._batches: list[tuple[float, KeyArray]] = []

    def sample(self) -> npt.NDArray[np.uint64]:
        """The window now, ``uint64[size]``, a new array in order of arrival."""
        return np.concatenate([no_keys(), *(keys for _, keys in self._batches)])

    def rename(self, renamed: Callable[[KeyArray], KeyArray]) -> None:
        """Give items other keys; see ``Sampler``."""
        self._batches = [(age, renamed(keys)) for age, keys in self._batches]

    def _update(self, keys: KeyArray, elapsed: float) -> None:
        older = [(age + elapsed, batch) for age, batch in self._batches]
        self._batches = [(age, batch) for age, batch in older if age < self.span]
        if len(keys):
            self._batches.append((0.0, keys.copy()))

    def _content(self) -> State:
        return {"batches": [[age, encoded(keys)] for age, keys in self._batches]}

    def _load(self, state: Mapping[str, Any]) -> None:
        self._batches = [(age, decoded(text)) for age, text in state["batches"]]
