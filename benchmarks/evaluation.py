"""Speed of evaluating models and of building the report.

``python benchmarks/evaluation.py [--quick] [--json FILE] [--only matrix,sliding,report]``

matrix.ratio        the matrix of 84 models x 84 sliding intervals of the demo stream, stored predictions included, against
                    loading the model, reading the rows, forward and torchmetrics for every cell
sliding             seconds for a million binary predictions x five metrics x 1,000 sliding intervals of 1 % of the stream
report.build        seconds for the report of 20 pipelines x 100 triggers x 4 metrics x 125 intervals
report.size         its megabytes
report.interactive  seconds until Chromium answers

Cell by cell only some of the models are judged; rates are compared. ``--quick`` judges fewer models and predictions; the goal
of ``sliding`` stays that of a million.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    # The repository's root instead of this folder: its modules are found, and hide nobody else's.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.figures.judging import MODELS, matrix_figures, sliding_figures
from benchmarks.figures.reporting import report_figures
from benchmarks.groups import one_of
from benchmarks.measure import Machine
from benchmarks.policy_streams import demo
from benchmarks.report import Figure, busyness, print_table, write_json


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of what; the defaults are those of a full run."""

    models: int = MODELS
    cell_models: int = 6
    predictions: int = 1_000_000


QUICK: Final = Sizes(models=8, cell_models=1, predictions=500_000)

_GROUPS: Final[Mapping[str, Callable[[Sizes, Machine], Iterator[Figure]]]] = {
    "matrix": lambda sizes, machine: matrix_figures(demo(Path()), machine, sizes.models, sizes.cell_models),
    "sliding": lambda sizes, machine: sliding_figures(machine, sizes.predictions),
    "report": lambda _, machine: report_figures(machine),
}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Speed of judging models and of reports.")
    parser.add_argument("--quick", action="store_true", help="fewer models and predictions, within a minute")
    parser.add_argument("--json", type=Path, help="file that maps each id to value, unit, min, max and goal")
    parser.add_argument(
        "--only", type=one_of(_GROUPS), default=tuple(_GROUPS), help="figures to measure, for example matrix,report"
    )
    options = parser.parse_args()
    machine, sizes = Machine(), QUICK if options.quick else Sizes()
    found = [figure for name in options.only for figure in _GROUPS[name](sizes, machine)] + busyness(machine)
    print_table(found, "evaluation")
    if options.json is not None:
        write_json(options.json, found)


if __name__ == "__main__":
    main()
