"""Trainings on a device through ``modyn_dagster.training``: samples a second, and the share of time waiting for data."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from benchmarks.measure import Spread
from benchmarks.report import Figure
from fastpath import TrainingSet
from modyn_dagster.data.samples import Samples
from modyn_dagster.keys import KeyArray, keys_of
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import FastPath, Task, TrainedModel, TrainingData, train

#: Stages in which a device has nothing to do, and those that are no part of an epoch.
_WAITING: Final = ("data", "to_device")
_BESIDE: Final = ("prepare", "finish")
_WIDTH: Final = 64
_SETUPS: Final[dict[str, dict[str, Any]]] = {
    "mlp": {"model": {"name": "mlp", "hidden": [1024, 1024]}, "batch_size": 4096},
    "mlp_bf16": {"model": {"name": "mlp", "hidden": [1024, 1024]}, "batch_size": 4096, "precision": "bf16-mixed"},
    "mlp_by_loss": {
        "model": {"name": "mlp", "hidden": [1024, 1024]},
        "batch_size": 4096,
        "downsampling": {"policy": "loss", "mode": "batch_then_sample", "ratio": 0.5},
    },
}


class Rows:
    """Rows of 64 columns in memory, read by key as the platform's readers do."""

    def __init__(self, n: int) -> None:
        rng = np.random.default_rng(5)
        self._columns = {f"c{i}": rng.normal(size=n) for i in range(_WIDTH)}
        self._labels = (self._columns["c0"] > self._columns["c1"]).astype(np.int64)
        self.keys = keys_of(0, np.arange(n))

    def read(self, keys: KeyArray) -> Samples:
        """Samples of these keys, in their order."""
        at = (keys - self.keys[0]).astype(np.int64)
        return Samples(
            keys=keys,
            times=np.zeros(len(at), dtype="datetime64[us]"),
            labels=self._labels[at],
            targets=None,
            columns={name: column[at] for name, column in self._columns.items()},
            blobs=None,
        )


def figures(device: str, *, n: int, epochs: int = 3) -> Iterator[Figure]:
    """``train.<setup>.<memory or streamed>``: samples a second and the share spent waiting, of each epoch but the first."""
    rows = Rows(n)
    chosen = TrainingSet.of(rows.keys, np.ones(n, np.float32))
    for name, fields in _SETUPS.items():
        spec = TrainingSpec.model_validate({"device": device, "epochs": epochs, "checkpoint": None, **fields})
        for kind, fast_path in {"memory": FastPath(), "streamed": FastPath(cache_bytes=0)}.items():
            data = TrainingData(chosen, rows, fast_path)
            model = train(spec, data, task=Task("class", n_classes=2), seed=1, threads=1, source="benchmark")
            what = f"{name} on {device}, {kind}"
            rates, shares = _of_epochs(model)
            yield Figure(f"train.{name}.{kind}", what, Spread.of(rates), "samples/s")
            yield Figure(f"train.{name}.{kind}.waiting", f"{what}: share of time spent waiting for data", Spread.of(shares), "")


def _of_epochs(model: TrainedModel) -> tuple[list[float], list[float]]:
    rates, shares = [], []
    for epoch in model.epochs[1:]:
        seconds = {stage: value for stage, value in epoch["seconds"].items() if stage not in _BESIDE}
        total = sum(seconds.values())
        rates.append(epoch["n_samples"] / total)
        shares.append(sum(seconds.get(stage, 0.0) for stage in _WAITING) / total)
    return rates, shares
