"""The matrix of models and intervals of the demo stream, against loading, reading, predicting and scoring cell by cell."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file

from benchmarks.measure import Machine, interleave, timed
from benchmarks.policy_streams import LabelledStream
from benchmarks.report import Figure
from modyn_dagster.data.samples import Samples
from modyn_dagster.evaluation import (
    Predictions,
    generate_intervals,
    predict_range,
    score_intervals,
)
from modyn_dagster.evaluation.cells import Cell
from modyn_dagster.evaluation.intervals.generation import Interval
from modyn_dagster.evaluation.predictions.files import PredictionWriter
from modyn_dagster.keys import KeyArray, keys_of, positions_of
from modyn_dagster.reproducibility.randomness import rng_for

METRICS: Final = ("accuracy", "f1", "roc_auc", "log_loss", "brier")
MODELS: Final = 84
_SPEED_UP: Final = 10.0
_MOST_SECONDS: Final = 5.0


def matrix_figures(stream: LabelledStream, machine: Machine, models: int, cell_models: int) -> Iterator[Figure]:
    """``matrix.ratio`` and the cells per second of both ways; ``cell_models`` are judged cell by cell, ``models`` by us."""
    with tempfile.TemporaryDirectory(prefix="judging-") as folder:
        world = World(stream, Path(folder), max(models, cell_models))
        n = len(world.intervals)
        contenders = {
            "ours": timed(models * n, lambda: world.judge(range(models))),
            "cells": timed(cell_models * n, lambda: world.judge_by_cell(range(cell_models))),
        }
        rounds = interleave(contenders, machine)
    passes = f"{models} models x {n} intervals, {world.n_predicted // max(1, world.n_judged)} samples predicted per model"
    yield Figure("matrix.ratio", f"{passes}: speed against cell by cell", rounds.ratio("ours", "cells"), "x", _SPEED_UP)
    yield Figure("matrix.ours", "cells from one pass per model", rounds.rate("ours"), "cells/s")
    yield Figure("matrix.cells", f"cells one by one ({cell_models} models)", rounds.rate("cells"), "cells/s")


def sliding_figures(machine: Machine, samples: int, intervals: int = 1000) -> Iterator[Figure]:
    """``sliding``: five metrics on sliding intervals of 1 % of the stream each, from predictions in memory."""
    predictions = _made_up(samples)
    length = samples // 100
    stride = (samples - length) // (intervals - 1)
    block = {"kind": "sliding", "every": f"{stride}s", "length": f"{length}s"}
    unit = np.timedelta64(1, "us")
    found = generate_intervals(block, predictions.times[0], predictions.times[-1] + unit, cut=False)[:intervals]
    rounds = interleave({"ours": timed(samples, lambda: score_intervals(predictions, found, METRICS))}, machine)
    what = f"{samples:,} predictions x {len(METRICS)} metrics x {len(found)} intervals of 1 %"
    yield Figure("sliding", what, rounds.seconds("ours"), "s", _MOST_SECONDS, at_most=True)


class World:
    """The stream, models on disk, and both ways to judge them."""

    def __init__(self, stream: LabelledStream, folder: Path, n_models: int) -> None:
        # It takes seconds, which whoever only collects tests need not wait for, and which are part of no figure.
        from torchmetrics.functional.classification import binary_accuracy, binary_auroc, binary_f1_score

        self._metrics = (binary_accuracy, binary_f1_score, binary_auroc)
        self._folder = folder
        scale = stream.features.std(axis=0) + 1e-6
        self._features = np.ascontiguousarray((stream.features - stream.features.mean(axis=0)) / scale, dtype=np.float32)
        self._labels = stream.labels
        self._times = (stream.times * 1_000_000).astype("datetime64[us]")
        np.save(folder / "features.npy", self._features)
        np.save(folder / "labels.npy", self._labels)
        self.n_predicted = self.n_judged = 0
        for model in range(n_models):
            rng = rng_for(0, "judging", model)
            width = self._features.shape[1]
            weights = {"weight": rng.normal(size=(2, width)) / width, "bias": rng.normal(size=2)}
            save_file({name: torch.tensor(value, dtype=torch.float32) for name, value in weights.items()}, self._path(model))
        begin = self._times[0].astype("datetime64[Y]").astype("datetime64[us]")
        block = {"kind": "sliding", "every": "1y", "length": "3y"}
        grid = generate_intervals(block, begin, self._times[-1] + np.timedelta64(1, "us"), cut=False)
        self.intervals: Sequence[Interval] = grid[:MODELS]

    def judge(self, models: range) -> list[list[Cell]]:
        """Load each model once, predict every sample once, store that, and take all cells from it."""
        found, files = [], []
        with PredictionWriter() as writer:
            for model in models:
                path = self._folder / f"predictions-{model}.arrow"
                parts = list(predict_range(self._predictor(model), self._read, [(0, len(self._labels), None)], kind="class"))
                files.append(writer.write(path, parts, kind="class", n_outputs=2))
                found.append(score_intervals(Predictions.concat(parts), self.intervals, METRICS))
        self.n_predicted += sum(file.result().n_samples for file in files)
        self.n_judged += len(files)
        return found

    def judge_by_cell(self, models: range) -> list[list[list[float]]]:
        """For each model and interval: load the model, read the rows, forward, five metrics by torchmetrics and torch."""
        return [[self._cell(model, interval) for interval in self.intervals] for model in models]

    def _cell(self, model: int, interval: Interval) -> list[float]:
        forward = self._module(model)
        features, labels = (np.load(self._folder / f"{name}.npy", mmap_mode="r") for name in ("features", "labels"))
        low, high = np.searchsorted(self._times, np.array([interval.start, interval.end]))
        with torch.inference_mode():
            outputs = forward(torch.from_numpy(features[low:high].copy()))
            return self._five(outputs, torch.from_numpy(labels[low:high].copy()))

    def _five(self, outputs: torch.Tensor, labels: torch.Tensor) -> list[float]:
        share = outputs.softmax(dim=1)[:, 1]
        found = [metric(share, labels) for metric in self._metrics]
        found += [torch.nn.functional.cross_entropy(outputs, labels), (share - labels).square().mean()]
        return [float(value) for value in found]

    def _predictor(self, model: int) -> Callable[[Samples], npt.NDArray[np.float32]]:
        forward = self._module(model)

        def predict(samples: Samples) -> npt.NDArray[np.float32]:
            with torch.inference_mode():
                found: npt.NDArray[np.float32] = forward(torch.from_numpy(samples.columns["x"])).numpy()
            return found

        return predict

    def _read(self, keys: KeyArray) -> Samples:
        rows = positions_of(keys)
        columns: dict[str, npt.NDArray[Any]] = {"x": self._features[rows]}
        return Samples(keys=keys, times=self._times[rows], labels=self._labels[rows], targets=None, columns=columns, blobs=None)

    def _module(self, model: int) -> torch.nn.Module:
        module = torch.nn.Linear(self._features.shape[1], 2)
        module.load_state_dict(load_file(self._path(model)))
        return module

    def _path(self, model: int) -> Path:
        return self._folder / f"model-{model}.safetensors"


def _made_up(samples: int) -> Predictions:
    rng = rng_for(0, "sliding")
    labels = rng.integers(0, 2, samples)
    outputs = rng.normal(size=(samples, 2)).astype(np.float32)
    outputs[:, 1] += labels.astype(np.float32)
    times = (np.arange(samples) * 1_000_000).astype("datetime64[us]")
    return Predictions("class", keys_of(0, np.arange(samples)), times, labels, outputs, np.zeros(samples, np.float32))
