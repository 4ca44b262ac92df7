"""Cost of the training loop beside the same updates written by hand, of determinism, and of encoded columns.

``python benchmarks/training.py --json figures.json``. Both loops make the same updates in the same order on tensors in memory;
what happens before the first step and after the last one does not count.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.figures.determinism import determinism
from benchmarks.figures.encoding import encoding
from benchmarks.figures.looping import batch_then_sample, overhead
from benchmarks.groups import measured, one_of
from benchmarks.measure import Machine
from benchmarks.report import Figure, busyness, write_json


@dataclass(frozen=True)
class Setting:
    """How the figures of one call are measured."""

    quick: bool
    machine: Machine = field(default_factory=Machine)


def _group(figures: Callable[..., Iterator[Figure]], setting: Setting) -> Iterator[Figure]:
    return figures(setting.machine, quick=setting.quick)


_GROUPS: Final[Mapping[str, Any]] = {
    "overhead": partial(_group, overhead),
    "batch_then_sample": partial(_group, batch_then_sample),
    "determinism": partial(_group, determinism),
    "encoding": partial(_group, encoding),
}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="everything smaller, within a minute")
    parser.add_argument("--json", type=Path, help="file that maps each id to value, unit, min, max and goal")
    parser.add_argument("--only", type=one_of(_GROUPS), default=tuple(_GROUPS), help=f"of {', '.join(_GROUPS)}")
    options = parser.parse_args()
    setting = Setting(options.quick)
    found = measured(_GROUPS, options.only, setting) + busyness(setting.machine)
    if options.json is not None:
        write_json(options.json, found)


if __name__ == "__main__":
    main()
