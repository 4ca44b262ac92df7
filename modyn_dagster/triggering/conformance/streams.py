"""Streams to try a policy on: seeded, with ties, gaps, late samples, empty batches, and samples that are not for training."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import ORIGIN, key_of, ordinal_of, position_of
from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.triggering.stream.loaded_batch import Positions, Times
from modyn_dagster.triggering.stream.training_stream import Stream, StreamBatch


@dataclass(slots=True)
class GeneratedStream:
    """A stream of training samples, cut into batches.

    Attributes:
        name: for errors.
        times: ``datetime64[us][n]`` in arrival order.
        fails: bool[n]: whether the training of a trigger at this sample fails.
        by_hand: bool[n]: whether a person triggers here, after what was decided before and ahead of the next decision.
        lengths: of the batches; they add up to n.
        stride: position of a sample in its batch over its number there; at 2 every other sample is not for training.
        origin: how many samples lie before the run.
    """

    name: str
    times: Times
    fails: npt.NDArray[np.bool_]
    by_hand: npt.NDArray[np.bool_]
    lengths: Sequence[int]
    stride: int = 1
    origin: int = 0
    _starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._starts = [0, *accumulate(self.lengths)]

    def cut(self, lengths: Sequence[int]) -> "GeneratedStream":
        """Return the same samples in other batches."""
        return replace(self, lengths=tuple(lengths))

    def prefix(self, n: int) -> "GeneratedStream":
        """Return the first n samples, in the same batches as far as they go."""
        starts = [min(start, n) for start in self._starts]
        return replace(self, times=self.times[:n], lengths=[stop - start for start, stop in pairwise(starts)])

    def key(self, index: int) -> int:
        """Return the key of a sample; ``ORIGIN`` for -1."""
        if index < 0:
            return ORIGIN
        ordinal = bisect_right(self._starts, index) - 1
        return key_of(ordinal, (index - self._starts[ordinal]) * self.stride)

    def index(self, key: int) -> int:
        """Return the number of the last sample at or before a key; -1 before the first."""
        if key < 0:
            return -1
        ordinal = ordinal_of(key)
        if ordinal >= len(self.lengths):
            return len(self.times) - 1
        return self._starts[ordinal] + min(position_of(key) // self.stride, self.lengths[ordinal] - 1)

    def arriving(self) -> Iterator[Stream]:
        """Yield the stream as it grows batch by batch, from the first batch with which the run can begin."""
        begun = bisect_left(self._starts, self.origin, lo=1)
        batches = [self._batch(ordinal) for ordinal in range(len(self.lengths))]
        stream = Stream(batches[:begun], self.key(self.origin - 1))
        yield stream
        for batch in batches[begun:]:
            stream = stream.extended(batch)
            yield stream

    def _batch(self, ordinal: int) -> StreamBatch:
        times = self.times[self._starts[ordinal] : self._starts[ordinal + 1]]

        def load() -> tuple[Positions, Times]:
            return np.arange(len(times)) * self.stride, times

        return StreamBatch(ordinal, len(times), times.max() if len(times) else np.datetime64(0, "us"), load)


def generated_streams(samples: int, span: np.timedelta64, seed: int) -> Iterator[GeneratedStream]:
    """One stream of every sort, of so many samples over about that much time."""
    step = span / samples
    sorts = {
        "regular": np.full(samples, step),
        "ties": step
        * np.repeat(rng_for(seed, "ties").integers(0, 40, -(-samples // 20)), 20)[:samples]
        * (np.arange(samples) % 20 == 0),
        "gaps": step * np.where(rng_for(seed, "gaps").random(samples) < 0.02, samples / 10, 0.2),
        "late samples": np.full(samples, step),
        "empty batches": step * rng_for(seed, "steps").exponential(1.0, samples),
        "some not for training": step * rng_for(seed, "other steps").exponential(1.0, samples),
        "begins late": np.full(samples, step),
    }
    for name, steps in sorts.items():
        rng = rng_for(seed, name)
        times = np.datetime64("2020-01-01", "us") + np.cumsum(steps)
        if name == "late samples":
            times = times - step * np.where(rng.random(samples) < 0.1, rng.integers(0, samples // 4 + 1, samples), 0)
        yield GeneratedStream(
            name,
            times,
            fails=rng.random(samples) < 0.1,
            by_hand=rng.random(samples) < 0.02,
            lengths=other_batches(samples, rng, empty=name == "empty batches"),
            stride=2 if name == "some not for training" else 1,
            origin=samples // 3 if name == "begins late" else 0,
        )


def other_batches(samples: int, rng: np.random.Generator, *, empty: bool = True) -> list[int]:
    """Lengths of up to ten batches that add up to ``samples``."""
    cuts = np.sort(rng.integers(0, samples + 1, 9))
    if empty:
        cuts[1::3] = cuts[::3]
    return [int(n) for n in np.diff([0, *cuts, samples])]
