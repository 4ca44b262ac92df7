"""Speed of ingesting samples and of selecting their keys: figures F14 to F16.

``python benchmarks/ingestion.py [--quick] [--json FILE] [--only F14,F15] [--work DIR]``

Starts a Postgres of its own the way the product does (logged tables, checksums, fsync) in a folder that is removed
afterwards. Repetitions of contenders are interleaved; reported are the median of at least five, the smallest and the largest.
Before each repetition the server writes out what is dirty, so that none pays for the one before.

F14  keys, times and labels of one batch into the dataset's partition, in one transaction, by binary COPY; F14.two: two
     processes with a batch each at the same time. For orientation: the same table by text COPY and by INSERT.
F15  a CSV file to an ingested batch, all that ``ingest_batch`` does: rows found, every cell checked, checksums, index,
     Postgres. Rows per CPU second, those of the server included; F15.first: the first batch of a dataset, whose columns have
     to be found; F15.clock: by the clock; F15.memory: memory beyond the page cache.
F15.late  CPU time of the same with labels that arrive later, over that with labels in the batches.
F16  keys read by selection's postgres backend and written as a training set, with checksum and fsync.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    # The repository's root instead of this folder: its modules are found, and hide nobody else's.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.database import Database, database
from benchmarks.figures import ingesting, metadata, selecting
from benchmarks.groups import one_of
from benchmarks.measure import Machine
from benchmarks.report import Figure, busyness, print_table, write_json


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rows of one repetition; the defaults are those of a full run."""

    metadata: int = 2_000_000
    csv: int = 5_000_000
    keys: int = 10_000_000


#: Everything within about a minute.
QUICK: Final = Sizes(metadata=500_000, csv=500_000, keys=2_000_000)

_GROUPS: Final[Mapping[str, Callable[[Database, Path, Sizes, Machine], Iterator[Figure]]]] = {
    "F14": lambda server, _, sizes, machine: metadata.figures(server, sizes.metadata, machine),
    "F15": lambda server, work, sizes, machine: ingesting.figures(server, work, sizes.csv, machine),
    "F15.late": lambda server, work, sizes, machine: ingesting.late_figures(server, work, sizes.csv // 2, machine),
    "F16": lambda server, work, sizes, machine: selecting.figures(server, work, sizes.keys, machine),
}


def measure(work: Path, sizes: Sizes, only: tuple[str, ...]) -> list[Figure]:
    """The figures asked for, printed as they come, each on a server of its own."""
    machine, found = Machine(), []
    for name in only:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=work) as folder, database(Path(folder)) as server:
            measured = list(_GROUPS[name](server, Path(folder), sizes, machine))
        print_table(measured, f"{name} ({time.perf_counter() - start:.0f} s)")
        found += measured
    return found + busyness(machine)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Throughput of ingestion; figures F14 to F16.")
    parser.add_argument("--quick", action="store_true", help="everything smaller, about a minute")
    parser.add_argument("--json", type=Path, help="file that maps each id to value, unit, min, max and goal")
    parser.add_argument("--only", type=one_of(_GROUPS), default=tuple(_GROUPS), help="figures to measure, for example F14,F15")
    parser.add_argument(
        "--work", type=Path, help="existing folder for data, 10 GB at most; emptied again (default: a temporary folder)"
    )
    parser.add_argument("--rows", type=int, help="rows of a repetition, for all figures")
    options = parser.parse_args()
    sizes = QUICK if options.quick else Sizes()
    sizes = sizes if options.rows is None else Sizes(options.rows, options.rows, options.rows)
    with tempfile.TemporaryDirectory(prefix="modyn-benchmark-", dir=options.work) as work:
        # A server that root starts runs under another account, which has to come this far.
        Path(work).chmod(0o711)
        found = measure(Path(work), sizes, options.only)
    print_table(found, "All figures")
    if options.json is not None:
        write_json(options.json, found)


if __name__ == "__main__":
    main()
