"""Speed of policies without measurements: amount, time, and an ensemble of both; and their share of a replay.

``python benchmarks/deciding.py [--quick] [--json FILE] [--samples N]``

deciding.<policy>        seconds to decide about a million samples with a decision point at every 100th
deciding.<policy>.each   the same with one at every sample
deciding.overhead.<policy>   milliseconds per batch of a thousand samples in a replay, what is measured left out

``--quick`` takes a tenth of the samples; goals shrink in proportion. ``benchmarks/drift.py --only deciding`` measures
all but the overhead.
"""

import argparse
import sys
from pathlib import Path

if __name__ == "__main__":
    # The repository's root replaces this folder, so that its modules are found and hide no others.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.figures.deciding import SAMPLES, deciding_figures
from benchmarks.figures.overhead import overhead_figures
from benchmarks.measure import Machine
from benchmarks.report import busyness, print_table, write_json


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Speed of deciding.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the samples")
    parser.add_argument("--json", type=Path, help="file that maps each id to value, unit, min, max and goal")
    parser.add_argument("--samples", type=int, help="of the stream")
    options = parser.parse_args()
    machine = Machine()
    samples = options.samples or (SAMPLES // 10 if options.quick else SAMPLES)
    found = [*deciding_figures(machine, samples), *overhead_figures(machine), *busyness(machine)]
    print_table(found, "deciding")
    if options.json is not None:
        write_json(options.json, found)


if __name__ == "__main__":
    main()
