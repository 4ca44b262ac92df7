"""Accuracy matrices and Pareto plots of real streams: gain of retraining, by frequency.

``python benchmarks/judged_streams.py --data FOLDER --plots FOLDER [--streams digits_by_era,elec2,demo] [--report FOLDER]``

On every stream a network is trained once, or again after a small or a large number of samples, always on what came since, from
the weights it had. All models are judged on all intervals. ``--data`` is the folder that holds the folders ``elec2`` and
``digits_by_era``; the demo's stream needs none. ``--report`` also writes the interactive pages.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

if __name__ == "__main__":
    # The repository's root instead of this folder: its modules are found, and hide nobody else's.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.policy_streams import LabelledStream, demo, digits_by_era, elec2
from modyn_dagster.evaluation import Interval, Predictions, generate_intervals, score_intervals
from modyn_dagster.keys import keys_of
from modyn_dagster.reporting.page.data import PipelineRecord, ReportData
from modyn_dagster.reporting.page.document import write_report
from modyn_dagster.reporting.page.plots import matrix_figure, pareto_figure
from modyn_dagster.reporting.plots.figures import save
from modyn_dagster.reproducibility.randomness import seed_for

STREAMS: Final = {"digits_by_era": digits_by_era, "elec2": elec2, "demo": demo}
METRICS: Final = ("accuracy", "log_loss")
_BATCH: Final = 128


def judge_stream(stream: LabelledStream) -> ReportData:
    """Train by three policies, and judge all their models."""
    times = (stream.times * 1_000_000).astype("datetime64[us]")
    small, large = stream.units.amounts
    block = {"kind": "tumbling", "every": stream.units.interval}
    intervals = generate_intervals(block, times[0], times[-1] + np.timedelta64(1, "us"))
    # What is known of the columns before anything is trained.
    first = stream.features[:small]
    inputs = torch.from_numpy((stream.features - first.mean(axis=0)) / (first.std(axis=0) + 1e-3))
    n = len(times)
    policies = {"once": [small], f"every {small:,} samples": [*range(small, n + 1, small)]}
    policies[f"every {large:,} samples"] = [small, *range(small + large, n + 1, large)]
    records = [_record(name, ends, stream, inputs, times, intervals) for name, ends in policies.items()]
    starts, stops, anchors = (np.array([getattr(i, part) for i in intervals]) for part in ("start", "end", "anchor"))
    return ReportData(stream.name, starts, stops, anchors, METRICS, tuple(records))


def _record(
    name: str,
    ends: Sequence[int],
    stream: LabelledStream,
    inputs: torch.Tensor,
    times: npt.NDArray[np.datetime64],
    intervals: Sequence[Interval],
) -> PipelineRecord:
    labels = torch.from_numpy(stream.labels)
    [hidden] = stream.training["model"]["hidden"]
    torch.manual_seed(seed_for(0, "judged stream", stream.name))
    n_classes = int(stream.labels.max()) + 1
    network = torch.nn.Sequential(torch.nn.Linear(inputs.shape[1], hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, n_classes))
    rows: list[list[list[float]]] = []
    seconds: dict[str, list[float]] = {"train": [], "evaluate": []}
    begins = [0, *ends[:-1]]
    for begin, end in zip(begins, ends, strict=True):
        since = time.perf_counter()
        _train(network, inputs[begin:end], labels[begin:end], stream.training["epochs"])
        trained = time.perf_counter()
        with torch.inference_mode():
            outputs = network(inputs).numpy()
        keys, losses = keys_of(0, np.arange(len(outputs))), np.zeros(len(outputs), np.float32)
        cells = score_intervals(Predictions("class", keys, times, stream.labels, outputs, losses), intervals, METRICS)
        found = [[cell[metric].value for cell in cells] for metric in METRICS]
        rows.append([[np.nan if value is None else value for value in values] for values in found])
        seconds["train"].append(trained - since)
        seconds["evaluate"].append(time.perf_counter() - trained)
    values = np.array(rows)
    return PipelineRecord(
        label=name,
        group=name,
        state="finished",
        train_ends=times[np.array(ends) - 1],
        n_samples=np.diff([0, *ends]),
        seconds={stage: np.array(spent) for stage, spent in seconds.items()},
        matrices={metric: values[:, place] for place, metric in enumerate(METRICS)},
    )


def _train(network: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor, epochs: int) -> None:
    optimizer = torch.optim.Adam(network.parameters(), lr=0.003)
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(labels)), _BATCH):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(inputs[rows]), labels[rows]).backward()  # type: ignore[no-untyped-call, unused-ignore]  # torch has no type for it
            optimizer.step()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Accuracy matrices and Pareto plots of real streams.")
    parser.add_argument("--data", type=Path, default=Path(), help="folder with the folders elec2 and digits_by_era")
    parser.add_argument("--plots", type=Path, required=True, help="folder for matrix_<stream>.png and pareto_<stream>.png")
    parser.add_argument("--report", type=Path, help="folder for the interactive <stream>.html")
    parser.add_argument("--streams", default=",".join(STREAMS), help="for example elec2,demo")
    options = parser.parse_args()
    for name in options.streams.split(","):
        data = judge_stream(STREAMS[name](options.data))
        often = max(data.pipelines, key=lambda record: len(record.train_ends))
        save(matrix_figure(data, often, METRICS[0]), options.plots / f"matrix_{name}.png")
        save(pareto_figure(data, METRICS[0]), options.plots / f"pareto_{name}.png")
        if options.report is not None:
            write_report(data, options.report / f"{name}.html")
        print(name, {record.label: len(record.train_ends) for record in data.pipelines})


if __name__ == "__main__":
    main()
