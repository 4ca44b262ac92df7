"""What the training loop costs beside the same updates written by hand, and what determinism costs.

``python -m benchmarks.training --json figures.json``. Both loops make the same updates in the same order on tensors in memory;
what happens before the first step and after the last one does not count.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from benchmarks.contenders.hand_written import Setup, dlrm, mlp
from benchmarks.figures.determinism import determinism
from benchmarks.measure import ROUNDS, Machine, Spread, interleave
from benchmarks.report import Figure, busyness, print_table, write_json

#: Steps of at least so many milliseconds may take 5 % longer, shorter ones 50 microseconds.
_LONG: float = 2.0
_SHARE: float = 1.05
_MICROSECONDS: float = 50.0


def overhead(machine: Machine, *, quick: bool) -> Iterator[Figure]:
    """``loop.<setup>.ratio`` for long steps, ``loop.<setup>.microseconds`` for short ones, and milliseconds of both loops."""
    n = 20_000 if quick else 100_000
    setups = [mlp("mlp_small", n, 64, [64, 64]), mlp("mlp_large", n // 4, 1024, [1024, 1024]), dlrm("dlrm", n, 512)]
    for setup in setups:
        yield from _compared(setup, machine)


def _compared(setup: Setup, machine: Machine) -> Iterator[Figure]:
    rounds = interleave({"ours": setup.ours, "by_hand": setup.by_hand}, machine, rounds=ROUNDS, warm_up=1)
    for name in ("ours", "by_hand"):
        yield Figure(f"loop.{setup.name}.{name}", f"{setup.what}, {name}", _scaled(rounds.seconds(name), setup, 1e3), "ms/step")
    pairs = list(zip(rounds.runs["ours"], rounds.runs["by_hand"], strict=True))
    extra = Spread.of([1e6 * (ours.seconds - hand.seconds) / setup.n_steps for ours, hand in pairs])
    ratio = Spread.of([ours.seconds / hand.seconds for ours, hand in pairs])
    is_long = 1e3 * rounds.seconds("by_hand").value / setup.n_steps >= _LONG
    what = f"{setup.what}, the loop over one by hand"
    yield Figure(f"loop.{setup.name}.ratio", what, ratio, "x", _SHARE if is_long else None, at_most=True)
    goal = None if is_long else _MICROSECONDS
    yield Figure(f"loop.{setup.name}.microseconds", f"{what}, a step", extra, "us", goal, at_most=True)


def _scaled(seconds: Spread, setup: Setup, factor: float) -> Spread:
    return Spread(*(factor * value / setup.n_steps for value in (seconds.value, seconds.min, seconds.max)))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="everything smaller, within a minute")
    parser.add_argument("--json", type=Path, help="file that maps each id to value, unit, min, max and goal")
    parser.add_argument("--only", choices=["overhead", "determinism"], help="one group of figures")
    options = parser.parse_args()
    machine, found = Machine(), list[Figure]()
    for name, group in (("overhead", overhead), ("determinism", determinism)):
        if options.only in (None, name):
            figures = list(group(machine, quick=options.quick))
            print_table(figures, name)
            found += figures
    found += busyness(machine)
    if options.json is not None:
        write_json(options.json, found)


if __name__ == "__main__":
    main()
