"""Sweep over the choices that the time-biased sampling paper leaves open for Table 1, to find those nearest to its numbers.

``python benchmarks/tbs_sweep.py [--runs N]``. Open are how many batches a run has, from which batch on the shortfall counts
where a pattern's first change does not end at 20, who wins a tie among neighbours, and whether the 100 centres are drawn once
or for every run. Each line is one choice for one pattern: the mean relative deviation of the ten numbers of its row, and how
many of these lie outside of what the runs spread over. A run has centres of its own; so the spread over runs is what another
single draw might have given.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.tbs_experiments import DECAYS, TABLE, Row, constant
from benchmarks.tbs_learners import Tie, expected_shortfall, majority, nearest_labels
from benchmarks.tbs_streams import WARM_UP, Array, gaussian_classes
from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.selection.time_biased import RTBS, Sampler, SlidingWindow, UniformReservoir

_BATCHES: Final = (30, 40, 50, 60, 80, 100)
_N: Final = 1_000
_K: Final = 7
_TIES: Final[tuple[Tie, ...]] = get_args(Tie)


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to read the paper, and how far it is from a row of Table 1.

    Attributes:
        row: name of the pattern.
        tie: who wins.
        batches: of a run.
        after: first batch of the shortfall.
        deviation: mean of ``|ours - paper| / paper`` over the row.
        outside: numbers that no run of ours reaches, of ten.
    """

    row: str
    tie: Tie
    batches: int
    after: int
    deviation: float
    outside: int


def choices(row: Row, errors: Array, samplers: list[str]) -> Iterator[Choice]:
    """All of one row, from ``float64[runs, samplers, batches, ties]``."""
    paper = np.array([row.paper[name] for name in samplers])
    for number, tie in enumerate(_TIES):
        for batches in _BATCHES:
            for after in sorted({20, row.after}):
                if after >= batches:
                    continue
                found = np.array([[_pair(one[:batches, number], after) for one in run] for run in errors])
                deviation = np.abs(found.mean(axis=0) - paper) / paper
                outside = (paper < found.min(axis=0)) | (paper > found.max(axis=0))
                yield Choice(row.name, tie, batches, after, float(deviation.mean()), int(outside.sum()))


def errors_of(row: Row, seed: int, batches: int) -> tuple[list[str], Array]:
    """Percent misclassified in one run, ``float64[samplers, batches, ties]``."""
    rng = rng_for(seed, "stream")
    items = gaussian_classes(row.pattern, constant(batches)(rng), rng)
    samplers: dict[str, Sampler] = {f"R-TBS {decay:g}": RTBS(_N, decay, seed) for decay in DECAYS}
    samplers |= {"SW": SlidingWindow(_N), "Unif": UniformReservoir(_N, seed)}
    found = np.empty((len(samplers), batches, len(_TIES)))
    for number, (start, end) in enumerate(zip(np.append(0, items.ends[:-1]), items.ends, strict=True)):
        for place, sampler in enumerate(samplers.values()):
            if number >= WARM_UP:
                kept = sampler.sample().astype(np.int64)
                y = items.targets[kept]
                labels = nearest_labels(items.features[kept], y, items.features[start:end], _K)
                counts = np.bincount(y.astype(np.int64))
                wrong = [np.mean(majority(labels, counts, tie) != items.targets[start:end]) for tie in _TIES]
                found[place, number - WARM_UP] = 100 * np.array(wrong)
            sampler.update(np.arange(start, end, dtype=np.uint64))
    return list(samplers), found


def _pair(values: Array, after: int) -> tuple[float, float]:
    return float(values.mean()), expected_shortfall(values[after:], 0.1)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Try out what the paper leaves open about Table 1.")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--best", type=int, default=6, help="choices shown per pattern")
    options = parser.parse_args()
    table = Table(
        "pattern", "tie", "batches", "shortfall from", "deviation", "outside of the runs", title="Table 1, nearest first"
    )
    for row in TABLE:
        runs = [errors_of(row, seed, max(_BATCHES)) for seed in range(options.runs)]
        found = choices(row, np.stack([errors for _, errors in runs]), runs[0][0])
        for one in sorted(found, key=lambda choice: choice.deviation)[: options.best]:
            spread = f"{100 * one.deviation:.1f} %"
            table.add_row(one.row, one.tie, str(one.batches), str(one.after), spread, f"{one.outside} of 10")
        table.add_section()
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
