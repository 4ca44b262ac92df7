"""Speed of drift metrics: MMD against alibi-detect, Kolmogorov-Smirnov against scipy, memory.

``python benchmarks/drift.py [--quick] [--json FILE] [--only mmd,ks,memory,deciding] [--sizes 1000] [--widths 32] [--threads N]
[--rounds 3] [--clock cpu]``

Contenders run in turn in one process, on the same arrays, with the same number of threads; a ratio is taken inside each
round, and reported are the median of five (of MMD, where a round takes minutes, of ``--rounds``), the smallest and the
largest. Before anything is timed the answers are compared: MMD with one bandwidth to 1e-5, the statistics and p-values of KS
to the last bit.

mmd.<n>.<d>           unbiased MMD of 2 x n samples of d dimensions with 100 permutations, over alibi-detect's torch backend,
                      each with its own median heuristic; a call begins with the arrays and ends with statistic and p-value
mmd.<n>.<d>.given     the same with the bandwidth given to both, for the smallest n
mmd.features.<n>.<d>  the same by 512 random Fourier features, over alibi-detect's exact one
ks, ks.float32        512 columns of 5,000 x 5,000, over a loop of ``scipy.stats.ks_2samp(..., method="asymp")``
deciding.<policy>     see ``benchmarks/deciding.py``
memory.<n>            what MMD with 100 permutations adds to the memory of the process at its peak

alibi-detect comes with the extra ``drift-alibi``; without it the figures that need it are left empty. It takes about a minute
per call at 2 x 5,000.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    # The repository's root replaces this folder, so that its modules are found and hide no others.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import torch

from benchmarks.figures import drifting
from benchmarks.figures.deciding import deciding_figures
from benchmarks.figures.drifting import QUICK, Setting
from benchmarks.groups import measured, one_of
from benchmarks.measure import ROUNDS
from benchmarks.report import Figure, busyness, write_json

_GROUPS: Final[Mapping[str, Callable[[Setting], Iterator[Figure]]]] = {
    "deciding": lambda setting: deciding_figures(setting.machine, setting.decisions),
    "ks": drifting.ks,
    "memory": drifting.memory,
    "mmd": drifting.mmd,
}
#: Clocks: elapsed seconds, or seconds of the processor, which other programs do not lengthen.
_CLOCKS: Final[Mapping[str, Callable[[], float]]] = {"wall": time.perf_counter, "cpu": time.process_time}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Speed and memory of drift metrics.")
    parser.add_argument("--quick", action="store_true", help="everything smaller, within a minute")
    parser.add_argument("--json", type=Path, help="file that maps each id to value, unit, min, max and goal")
    parser.add_argument("--only", type=one_of(_GROUPS), default=tuple(_GROUPS), help="groups to measure, for example mmd,ks")
    parser.add_argument("--sizes", type=_numbers, help="samples per window for mmd, for example 1000,5000")
    parser.add_argument("--widths", type=_numbers, help="dimensions for mmd, for example 32,512")
    parser.add_argument("--threads", type=int, help="threads of torch, for both sides (default: torch's)")
    parser.add_argument("--clock", choices=_CLOCKS, default="wall", help="of mmd; cpu for a busy machine, with --threads 1")
    parser.add_argument("--rounds", type=_at_least_one, default=ROUNDS, help=f"of mmd (default: {ROUNDS})")
    options = parser.parse_args()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    setting = QUICK if options.quick else Setting()
    setting = replace(setting, sizes=options.sizes or setting.sizes, widths=options.widths or setting.widths)
    setting = replace(setting, mmd_rounds=options.rounds, mmd_clock=_CLOCKS[options.clock])
    found = measured(_GROUPS, options.only, setting)
    found += busyness(setting.machine)
    if options.json is not None:
        write_json(options.json, found)


def _at_least_one(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{number} rounds measure nothing")
    return number


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


if __name__ == "__main__":
    main()
