"""Reproduction of the time-biased sampling paper's experiments: paper, reference and ours.

``python benchmarks/reproduce_tbs.py [--usenet2 FILE] [--json FILE] [--plots FOLDER] [--runs N] [--quick]``

Hentschel, Haas, Tian, "Temporally-Biased Sampling for Online Model Management" (EDBT 2018): Table 1 (kNN), Figure 11 (varying
batch sizes), Figure 12 (regression), Figure 13 (Usenet2, where ``--usenet2`` names its CSV file) and Figure 1 (sample sizes in
four regimes). Every model is trained on the sample and judged on the next batch, before the sample sees it. Means are over 30
runs; a shortfall (ES) is the mean of the worst 10 % of a run's batches from batch 20 on (Usenet2: 20 % of all). ``reference`` is
R-TBS item by item as in the pseudo-code, at the first decay rate.

The paper leaves open how many batches a run has; 50 reproduces its regression, and ``benchmarks/tbs_sweep.py`` tries out
what it leaves open about Table 1. Of Figure 11 it gives multiples of R-TBS. JSON ids are ``<experiment>.<sampler>.error``
and ``.es``; the goal is the paper's number.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.measure import Spread
from benchmarks.report import Figure, write_json
from benchmarks.tbs_experiments import Experiment, experiments
from benchmarks.tbs_plots import draw
from benchmarks.tbs_regimes import regimes, sizes_over_time
from benchmarks.tbs_streams import Array

_QUICK_RUNS: Final = 3
_UNITS: Final = {"fig12": "MSE"}

Results = Sequence[tuple[Experiment, Mapping[str, Array]]]


def show(results: Results) -> None:
    """One line per experiment and sampler."""
    table = Table("experiment", "sampler", "error, paper", "ours", "ES, paper", "ours ", title="paper and ours")
    for experiment, found in results:
        for sampler, values in found.items():
            error, shortfall = experiment.summary(values)
            paper = paper_of(experiment, found).get(sampler)
            told = ("", "") if paper is None else (f"{paper[0]:.4g}", f"{paper[1]:.4g}")
            table.add_row(experiment.id, sampler, told[0], f"{error:.2f}", told[1], f"{shortfall:.2f}")
        table.add_section()
    Console(width=110).print(table)


def paper_of(experiment: Experiment, found: Mapping[str, Array]) -> Mapping[str, tuple[float, float]]:
    """What the paper reports; multiples of R-TBS are taken of ours."""
    base = experiment.summary(found["R-TBS 0.07"]) if experiment.ratios else (0.0, 0.0)
    multiplied = {name: (base[0] * error, base[1] * shortfall) for name, (error, shortfall) in experiment.ratios.items()}
    return {**experiment.paper, **multiplied}


def figures(results: Results) -> list[Figure]:
    """Error and shortfall; the spread is over runs, the goal what the paper reports."""
    listed = []
    for experiment, found in results:
        unit = _UNITS.get(experiment.id.partition(".")[0], "%")
        for sampler, values in found.items():
            pair = experiment.summary(values)
            by_run = [experiment.summary(run[None]) for run in values]
            goals = paper_of(experiment, found).get(sampler, (None, None))
            for i, what in enumerate(("error", "es")):
                of_runs = [run[i] for run in by_run]
                spread = Spread(pair[i], min(of_runs), max(of_runs))
                name = f"{experiment.id}.{sampler.replace(' ', '_')}.{what}"
                listed.append(Figure(name, what, spread, unit, goals[i], at_most=True))
    return listed


def plot(results: Results, folder: Path) -> None:
    """Three pictures: sample sizes, classifiers, regressions."""
    sizes = [(title, sizes_over_time(decay, batches)) for title, (decay, batches) in regimes().items()]
    draw(
        [(title, {k: v.astype(np.float64) for k, v in lines.items()}) for title, lines in sizes],
        "items",
        folder / "tbs_sizes.png",
    )
    for name, unit, prefixes in (
        ("tbs_classifiers.png", "% misclassified", ("table1", "fig11", "fig13")),
        ("tbs_regression.png", "MSE", ("fig12",)),
    ):
        panels = [(experiment.id, _drawn(found)) for experiment, found in results if experiment.id.startswith(prefixes)]
        draw(panels, unit, folder / name)


def _drawn(found: Mapping[str, Array]) -> dict[str, Array]:
    rtbs = "R-TBS 0.07" if "R-TBS 0.07" in found else "R-TBS 0.3"
    return {"R-TBS": found[rtbs], "SW": found["SW"], "Unif": found["Unif"]}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Re-run the experiments of the time-biased sampling paper.")
    parser.add_argument("--usenet2", type=Path, help="usenet2.csv; without it Figure 13 is left out")
    parser.add_argument("--json", type=Path, help="file that maps each id to value, unit, min, max and goal")
    parser.add_argument("--plots", type=Path, help="folder for the pictures")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--quick", action="store_true", help=f"{_QUICK_RUNS} runs")
    options = parser.parse_args()
    runs = _QUICK_RUNS if options.quick else options.runs
    results = []
    for experiment in experiments(options.usenet2):
        results.append((experiment, experiment.run(runs)))
        print(f"{experiment.id}: done", flush=True)
    show(results)
    if options.json is not None:
        write_json(options.json, figures(results))
    if options.plots is not None:
        plot(results, options.plots)


if __name__ == "__main__":
    main()
