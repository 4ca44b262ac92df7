"""Speed of selecting training sets and of sampling streams: figures S1, S2, S3 and T1.

``python benchmarks/selection.py [--quick] [--json FILE] [--only Q,S,T] [--work DIR] [--rows N]``

Starts a Postgres of its own the way the product does, in a folder that is removed afterwards. Repetitions of contenders are
interleaved; reported are the median of at least five, the smallest and the largest.

S1  ``arrow``: uniform 50 % of a window of 20 million rows to a finished training set, with checksum and fsync. S1.labels:
    class-balanced over uniform; S1.memory: the most that Python and NumPy allocate meanwhile.
S2  ``postgres``: the same, window keys a second.
    S1.late, S2.late: class-balanced with labels that arrived later, all of them known, over labels that came with the samples.
S3  (``--only Q``) class-balanced by a statement of SQL beside ``balanced`` on both backends, a window of 10 million rows.
T1  items a second through ``update`` and ``sample`` of a saturated R-TBS sample of a million, by size of batch; the other
    samplers beside it.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.database import database
from benchmarks.figures import strategies, time_biased
from benchmarks.groups import one_of
from benchmarks.measure import Machine
from benchmarks.report import Figure, busyness, print_table, write_json

_ROWS: Final = 20_000_000
_QUICK_ROWS: Final = 1_000_000
#: Rows of the window that a statement of SQL selects from.
_SQL_ROWS: Final = 10_000_000
_GROUPS: Final = ("T", "S", "Q")


def measure(work: Path, rows: int, only: tuple[str, ...]) -> list[Figure]:
    """The figures asked for, printed as they come."""
    machine, found = Machine(), []
    if "T" in only:
        found += list(time_biased.figures(machine))
        print_table(found, "T1")
    if "S" in only:
        with tempfile.TemporaryDirectory(prefix="S-", dir=work) as folder, database(Path(folder)) as server:
            measured = list(strategies.figures(server, Path(folder), rows, machine))
        print_table(measured, "S1, S2")
        found += measured
    if "Q" in only:
        with tempfile.TemporaryDirectory(prefix="Q-", dir=work) as folder, database(Path(folder)) as server:
            measured = list(strategies.sql_figures(server, Path(folder), min(rows, _SQL_ROWS), machine))
        print_table(measured, "S3")
        found += measured
    return found + busyness(machine)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Speed of selection and of time-biased samples; figures S1, S2, S3 and T1.")
    parser.add_argument("--quick", action="store_true", help="a small window, about a minute")
    parser.add_argument("--json", type=Path, help="file that maps each id to value, unit, min, max and goal")
    parser.add_argument("--only", type=one_of(_GROUPS), default=_GROUPS[:2], help="T, S (both by default), Q, or several of them")
    parser.add_argument("--work", type=Path, help="existing folder for data, 5 GB at most; emptied again")
    parser.add_argument("--rows", type=int, help="rows of the window")
    options = parser.parse_args()
    rows = options.rows or (_QUICK_ROWS if options.quick else _ROWS)
    with tempfile.TemporaryDirectory(prefix="modyn-benchmark-", dir=options.work) as work:
        found = measure(Path(work), rows, options.only)
    if options.json is not None:
        write_json(options.json, found)


if __name__ == "__main__":
    main()
