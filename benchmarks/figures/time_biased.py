"""T1: update speed of the samplers of a stream."""

import math
import time
from collections.abc import Iterator
from typing import Final

import numpy as np

from benchmarks.measure import Contender, Machine, Run, interleave
from benchmarks.report import Figure
from modyn_dagster.selection.time_biased import BTBS, RTBS, TTBS, Sampler, SlidingWindow, UniformReservoir

_N: Final = 1_000_000
#: Batches of one repetition.
_BATCHES: Final = {1_000_000: 5, 10_000: 40}
_GOALS: Final = {1_000_000: 100.0, 10_000: 5.0}


def figures(machine: Machine) -> Iterator[Figure]:
    """Items a second through ``update`` and ``sample`` after every batch, all samples about a million and saturated."""
    for batch in _BATCHES:
        rounds = interleave({name: _contender(sampler, batch) for name, sampler in _samplers(batch).items()}, machine)
        for name in rounds.runs:
            goal = _GOALS[batch] if name == "rtbs" else None
            what = f"{name}, n = 1 M, batches of {batch:,}"
            yield Figure(f"T1.{name}.{batch}", what, rounds.rate(name), "M items/s", goal)


def _samplers(batch: int) -> dict[str, Sampler]:
    """R-TBS saturated, at the paper's decay rate of 0.07 or a total weight of three times its size; the others as large."""
    decay = min(0.07, -math.log1p(-batch / (3 * _N)))
    return {
        "rtbs": RTBS(_N, decay, 0),
        "ttbs": TTBS(_N, decay, batch, 0),
        "btbs": BTBS(-math.log1p(-min(0.9, batch / _N)), 0),
        "uniform": UniformReservoir(_N, 0),
        "window": SlidingWindow(_N),
    }


def _contender(sampler: Sampler, batch: int) -> Contender:
    keys = np.arange(batch, dtype=np.uint64)
    for _ in range(2 * _N // batch + 5):
        sampler.update(keys)

    def run() -> Run:
        start = time.perf_counter()
        for _ in range(_BATCHES[batch]):
            sampler.update(keys)
            sampler.sample()
        return Run(_BATCHES[batch] * batch / 1e6, time.perf_counter() - start)

    return run
