"""Nine selection policies on a part of each trigger's data against full data, as in Modyn's Figures 1, 8 and 11.

``python benchmarks/reproduce_selection.py --data FOLDER [--streams digits_by_era,...] [--policies uniform,margin,...]
[--ratios 0.5,0.25,0.125] [--seeds 0,1,2] [--results FILE] [--json FILE] [--plots FOLDER] [--quick]``

Modyn, SIGMOD 2025, §7.1: finetuned at every trigger on what came since the last one, five epochs, three seeds, judged by the
currently trained composite model on samples that are set aside. Each pipeline is replayed by the platform itself on a Postgres
of the benchmark's own. Unlike the paper there are no triggers that warm up: the first one is trained on a part too, and its
score does not count; and every policy makes as many steps of 64 samples, whatever it chooses from.

``--data`` holds ``digits_by_era``, ``emoji_stream`` and ``arxiv_cs_titles``. ``--results`` collects a line per pipeline; what
it holds already is not run again. The JSON's ids are ``<stream>.<policy>.<per mille>.score``; the goal is full data's score.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from rich.console import Console
from rich.table import Table

from benchmarks.database import database
from benchmarks.measure import Spread
from benchmarks.report import Figure, write_json
from benchmarks.selection_plots import Scores, draw_ratios, draw_series
from benchmarks.selection_policies import FULL, NINE, POLICIES
from benchmarks.selection_runs import Result, plan, read_results, run_all
from benchmarks.selection_streams import STREAMS

#: Within a minute: the beginning of a stream, three policies, one seed.
_QUICK: Final = {
    "streams": ("digits_by_era",),
    "policies": ("uniform", "margin"),
    "ratios": (0.5,),
    "seeds": (0,),
}
_QUICK_SAMPLES: Final = 13_000


def scores_of(results: Sequence[Result]) -> Scores:
    """In the order of the policies' table."""
    found: dict[tuple[str, str, float], list[float]] = {}
    for result in sorted(results, key=lambda one: (-one.ratio, list(POLICIES).index(one.policy), one.seed)):
        found.setdefault((result.stream, result.policy, result.ratio), []).append(result.score)
    return found


def figures(scores: Scores) -> list[Figure]:
    """The mean over seeds, with the least and the largest; the goal is full data's."""
    listed = []
    for (stream, policy, ratio), values in scores.items():
        full = scores.get((stream, FULL.name, 1.0))
        goal = _mean(full) if full and policy != FULL.name else None
        name = f"{stream}.{policy.replace(' ', '_')}.{round(1000 * ratio)}.score"
        listed.append(Figure(name, "composite score", Spread(_mean(values), min(values), max(values)), "of 1", goal))
    return listed


def show(stream: str, scores: Scores) -> None:
    """Policies down, ratios across, in percent."""
    mine = {(policy, ratio): values for (name, policy, ratio), values in scores.items() if name == stream}
    ratios = sorted({ratio for _, ratio in mine}, reverse=True)
    table = Table("policy", *(f"{100 * ratio:g} %" for ratio in ratios), title=stream)
    for policy in [name for name in POLICIES if any(found == name for found, _ in mine)]:
        cells = [mine.get((policy, ratio)) for ratio in ratios]
        table.add_row(policy, *("" if cell is None else _cell(cell) for cell in cells))
    Console(width=100).print(table)


def _cell(values: Sequence[float]) -> str:
    return f"{100 * _mean(values):.1f} ({100 * min(values):.1f} to {100 * max(values):.1f}, {len(values)})"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Selection policies against full data on real streams.")
    parser.add_argument("--data", type=Path, required=True, help="folder with the streams' folders")
    parser.add_argument("--streams", type=_names(STREAMS), default=tuple(STREAMS))
    parser.add_argument("--policies", type=_names(POLICIES), default=tuple(policy.name for policy in NINE))
    parser.add_argument("--ratios", type=_numbers(float), default=(0.5, 0.25, 0.125))
    parser.add_argument("--seeds", type=_numbers(int), default=(0, 1, 2))
    parser.add_argument("--results", type=Path, help="file of finished pipelines, one a line; default: none is kept")
    parser.add_argument("--json", type=Path, help="file that maps each id to value, unit, min, max and goal")
    parser.add_argument("--plots", type=Path, help="folder for selection_<stream>.png and selection_ratios.png")
    parser.add_argument("--quick", action="store_true", help="the beginning of the digits, two policies, about a minute")
    parser.add_argument("--work", type=Path, help="existing folder for data, 2 GB at most; emptied again")
    options = parser.parse_args()
    if options.quick:
        parser.set_defaults(**_QUICK)
        options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="modyn-benchmark-", dir=options.work) as work:
        # A server that root starts runs under another account, which has to come this far.
        Path(work).chmod(0o711)
        results = _measured(options, Path(work), options.results or Path(work) / "results.jsonl")
    scores = scores_of(results)
    for stream in dict.fromkeys(result.stream for result in results):
        show(stream, scores)
        if options.plots is not None:
            draw_series(stream, [one for one in results if one.stream == stream], options.plots / f"selection_{stream}.png")
    if options.plots is not None:
        draw_ratios(scores, {one.stream: one.metric for one in results}, options.plots / "selection_ratios.png")
    if options.json is not None:
        write_json(options.json, figures(scores))


def _measured(options: argparse.Namespace, work: Path, results: Path) -> list[Result]:
    for name in options.streams:
        done = {result.wanted for result in read_results(results) if result.stream == name}
        wanted = [one for one in plan(options.policies, options.ratios, options.seeds) if one not in done]
        if not wanted:
            continue
        stream = STREAMS[name](options.data)
        stream = stream.first(_QUICK_SAMPLES) if options.quick else stream
        with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=work) as folder, database(Path(folder)) as server:
            for number, found in enumerate(run_all(server, Path(folder), stream, wanted, results), 1):
                said = f"{found.policy} {found.ratio:g} seed {found.seed}: {found.score:.3f}, {found.seconds:.0f} s"
                print(f"{name} {number}/{len(wanted)}: {said}", flush=True)
    return read_results(results)


def _names(known: Mapping[str, object]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)} is not among {', '.join(known)}")
        return names

    return parse


def _numbers(kind: Callable[[str], float]) -> Callable[[str], tuple[float, ...]]:
    return lambda text: tuple(kind(part) for part in text.split(","))


if __name__ == "__main__":
    main()
