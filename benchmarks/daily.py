"""Time that a user waits for in daily work: figures D1 to D4, D7, D8, P1 and C1.

``python benchmarks/daily.py [--quick] [--json FILE] [--only demo,import,...] [--work DIR]``

Starts a Postgres of its own the way the product does, imports the data, and replays pipelines by the command line, each once.

demo    D1 of the demo's three pipelines.
import  D4 of 1,000 batches of 500 rows.
many    D1 and D8 of 1,000 batches of 500 rows with 10 and with 100 triggers.
forms   D8 of compact and exact predictions: ten models on 500 batches of 500 rows.
scale   D2 and D3 of 10,000 batches of 20 rows against 1,000, with 100 triggers and 100 intervals at both.
page    D3.page of 10,000 batches of 20 rows, in Chromium.
pipelines  P1: sixty pipelines on one dataset of 1,000 batches of 20 rows, all waiting for data, under a running daemon.
growth  C1: what a sample, a file with a trigger, and a tick add to the databases and to the home folder.
live    D7: files delivered to a running daemon, cold and warm, and a backlog, warm; with intervals of 5 s.

D1    wall of `pipeline replay` over its ledger + 4 s + 5 ms a batch + 100 ms a trigger; the parts stand beside it.
D2    peak memory of a replay at 10,000 batches over that at 1,000.
D3    cost a batch at 10,000 batches over that at 1,000: of an import with events, a replay, `pipeline status`, and a tick that
      finds nothing new. D3.page: seconds of the page of an asset with that many partitions, beyond those of an empty one.
D4    wall of an import with its events in Dagster, a batch; from an empty database.
D7    from the tick that registers a file to the committed model, without the wait for the tick that decides and without the
      seconds of the ledger; 20 waiting triggers of about 0.5 s; waits for ticks stand beside both.
D8    ledger with 100 triggers over that of the same pipeline with the full evaluation matrix; seconds of selecting a
      training set; bytes a prediction where the matrix is asked for. Of compact against exact predictions: bytes, the largest
      difference of a score over every metric of two classes, and seconds of evaluating.
C1    bytes with indexes, of all tables of a database or folder and of each; constants of docs/beyond.md.
P1    seconds of a tick by Dagster's own record, and processor seconds of daemon and code server a second.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    # The repository's root instead of this folder: its modules are found, and hide nobody else's.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.figures import asset_page, growth, importing, live, many_batches, many_pipelines, prediction_forms, replaying
from benchmarks.groups import one_of
from benchmarks.measure import Machine
from benchmarks.report import Figure, busyness, print_table, write_json

#: Batches and rows of a batch: of a full run, and of a quick one; ``scale`` takes ten times as many, and has few rows.
FULL: Final = (1_000, 500)
QUICK: Final = (200, 500)

_GROUPS: Final[Mapping[str, Callable[[Path, tuple[int, int], Machine], Iterator[Figure]]]] = {
    "demo": lambda work, _, machine: replaying.demo(work, machine),
    "import": lambda work, sizes, machine: importing.imported(work, *sizes, machine),
    "many": lambda work, sizes, machine: replaying.made_up(work, *sizes, machine),
    "forms": lambda work, sizes, machine: prediction_forms.prediction_forms(work, sizes[0] // 2, sizes[1], machine),
    "scale": lambda work, sizes, machine: many_batches.scaled(work, 10 * sizes[0], machine),
    "page": lambda work, sizes, machine: asset_page.asset_page(work, 10 * sizes[0], machine),
    "pipelines": lambda work, sizes, machine: many_pipelines.many_pipelines(work, sizes[0], machine),
    "growth": lambda work, _, machine: growth.growth(work, machine),
    "live": lambda work, _, machine: live.live(work, machine),
}


def measure(work: Path, sizes: tuple[int, int], only: tuple[str, ...]) -> list[Figure]:
    """The figures asked for, printed as they come."""
    machine, found = Machine(), []
    for name in only:
        start = time.perf_counter()
        measured = list(_GROUPS[name](work, sizes, machine))
        print_table(measured, f"{name} ({time.perf_counter() - start:.0f} s)")
        found += measured
    return found + busyness(machine)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Waiting in daily work; figures D1 to D4, D7, D8, P1 and C1.")
    parser.add_argument("--quick", action="store_true", help="200 batches instead of 1,000")
    parser.add_argument("--json", type=Path, help="file that maps each id to value, unit, min, max and goal")
    parser.add_argument("--only", type=one_of(_GROUPS), default=tuple(_GROUPS), help="groups to measure, for example many")
    parser.add_argument("--work", type=Path, help="existing folder for data; emptied again (default: a temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="modyn-daily-", dir=options.work) as work:
        # A server that root starts runs under another account, which has to come this far.
        Path(work).chmod(0o711)
        found = measure(Path(work), QUICK if options.quick else FULL, options.only)
    print_table(found, "All figures")
    if options.json is not None:
        write_json(options.json, found)


if __name__ == "__main__":
    main()
