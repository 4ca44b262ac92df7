"""T1: how fast samples of a stream take in its batches."""

import time
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from benchmarks.measure import Contender, Machine, Run, interleave
from benchmarks.report import Figure
from modyn_dagster.selection.time_biased import BTBS, RTBS, TTBS, Sampler, SlidingWindow, UniformReservoir

_N: Final = 1_000_000
#: Batches of one repetition.
_BATCHES: Final = {1_000_000: 8, 10_000: 200}
_GOALS: Final = {1_000_000: 100.0, 10_000: 5.0}


def figures(machine: Machine) -> Iterator[Figure]:
    """Items a second through ``update`` and ``sample`` after every batch, all samples about a million and saturated."""
    for batch in _BATCHES:
        # W is three times n: what R-TBS holds is a third of the weight.
        decay = -np.log1p(-batch / (3 * _N)) if batch < 3 * _N else 1.0
        makers: dict[str, Callable[[], Sampler]] = {
            "rtbs": lambda decay=decay: RTBS(_N, decay, 0),
            "ttbs": lambda decay=decay, batch=batch: TTBS(_N, decay, batch, 0),
            "btbs": lambda batch=batch: BTBS(-np.log1p(-min(0.9, batch / _N)), 0),
            "uniform": lambda: UniformReservoir(_N, 0),
            "window": lambda: SlidingWindow(_N),
        }
        rounds = interleave({name: _contender(make(), batch) for name, make in makers.items()}, machine)
        for name in makers:
            goal = _GOALS[batch] if name == "rtbs" else None
            what = f"{name}, n = 1 M, batches of {batch:,}"
            yield Figure(f"T1.{name}.{batch}", what, rounds.rate(name), "M items/s", goal)


def _contender(sampler: Sampler, batch: int) -> Contender:
    keys = np.arange(batch, dtype=np.uint64)
    for _ in range(4 * _N // batch + 20):
        sampler.update(keys)

    def run() -> Run:
        start = time.perf_counter()
        for _ in range(_BATCHES[batch]):
            sampler.update(keys)
            sampler.sample()
        return Run(_BATCHES[batch] * batch / 1e6, time.perf_counter() - start)

    return run
