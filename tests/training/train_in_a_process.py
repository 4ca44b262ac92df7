"""Trains and predicts, and writes the bits to standard output: ``seed, rows per read, cold | warm``.

Ends with an error when that has loaded a library that no training of this kind uses.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fastpath import TrainingSet
from modyn_dagster.data.samples import Samples
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import Task, TrainingData, build_predictor, train

SPEC = TrainingSpec.model_validate({"model": {"name": "mlp", "dropout": 0.1}, "epochs": 3, "batch_size": 64})


@dataclass(frozen=True)
class Rows:
    read: Callable[[KeyArray], Samples]


def training_data(chunk: int) -> TrainingData:
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(700, 9)) * 10.0 ** rng.integers(-3, 3, 9)
    labels = (columns[:, 0] > 0).astype(np.int64)

    def read(keys: KeyArray) -> Samples:
        rows = np.concatenate([columns[keys[i : i + chunk].astype(int)] for i in range(0, len(keys), chunk)])
        times = np.zeros(len(keys), "datetime64[us]")
        return Samples(keys, times, labels[keys.astype(int)], None, {f"c{i}": rows[:, i] for i in range(9)})

    return TrainingData(TrainingSet.of(np.arange(700, dtype=np.uint64)), Rows(read))


def bits(seed: int, chunk: int, start: str) -> bytes:
    """Everything a training and a prediction leave; ``warm``: after another training in the same process."""
    data, task = training_data(chunk), Task("class")
    if start == "warm":
        train(SPEC, data, task=task, seed=seed + 1, threads=2, source="p")
    model = train(SPEC, data, task=task, seed=seed, threads=1, source="p")
    predict = build_predictor(model.architecture, model.state_dict, threads=1, source="p")
    state = b"".join(tensor.numpy().tobytes() for tensor in model.state_dict.values())
    outputs = predict(data.reader.read(data.chosen.keys()[:300]))
    return state + outputs.tobytes() + repr((model.losses, model.curve)).encode()


if __name__ == "__main__":
    sys.stdout.buffer.write(bits(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
    unused = {"torchmetrics", "transformers", "mlflow", "matplotlib", "pandas", "scipy", "sklearn", "dagster"} & set(sys.modules)
    sys.exit(f"loaded for nothing: {sorted(unused)}" if unused else 0)
