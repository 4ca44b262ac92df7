"""W1: a replay with workers against one process, and plain trainings in two bare processes against one."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import yaml

from benchmarks.figures.watched import Watched
from modyn_dagster.distributed.opening import open_pool
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.replay.run import ReplayRequest
from modyn_dagster.settings import Settings

#: Rows of a training, columns, units of the two hidden layers, and samples of a batch.
ROWS: Final = 4_000
COLUMNS: Final = 32
HIDDEN: Final = (256, 256)
BATCH: Final = 64
PIPELINE: Final = "trained_often"
#: Samples between two triggers: a tenth of each batch is evaluated on, and its share varies.
_EVERY: Final = int(ROWS * 0.87)


@dataclass(frozen=True, slots=True)
class Replayed:
    """A replay in a process of its own: its times, seconds by stage of the ledger, and the hashes of its models."""

    times: Watched
    stages: dict[str, float]
    hashes: Sequence[str]


def write_project(folder: Path, trainings: int, epochs: int) -> None:
    """Write a project with one dataset of a batch per training, and one pipeline."""
    for name in ("datasets", "pipelines", "data"):
        (folder / name).mkdir(parents=True)
    names = [f"x{i}" for i in range(COLUMNS)]
    for number in range(trainings):
        rng = np.random.default_rng(number)
        x = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
        label = (x[:, :8].sum(axis=1) + rng.normal(size=ROWS) > 0).astype(int)
        times = np.datetime64("2024-01-01", "s") + (number * ROWS + np.arange(ROWS)) * np.timedelta64(10, "s")
        lines = [f"{at}Z,{','.join(f'{value:.5f}' for value in row)},{y}" for at, row, y in zip(times, x, label, strict=True)]
        text = "\n".join([",".join(["time", *names, "label"]), *lines, ""])
        (folder / "data" / f"batch_{number:03d}.csv").write_text(text)
    dataset = {
        "name": "rows",
        "root": "../data",
        "format": {"kind": "csv"},
        "batches": {"kind": "file", "pattern": "*.csv"},
        "time": {"source": "column", "column": "time"},
        "label": {"kind": "class", "n_classes": 2, "from": {"source": "column", "column": "label"}},
        "split": {"train": 0.9, "evaluate": 0.1},
    }
    pipeline = {
        "name": PIPELINE,
        "dataset": "rows",
        "trigger": {"kind": "amount", "every": _EVERY},
        "training": {
            "model": {"name": "mlp", "hidden": list(HIDDEN)},
            "optimizer": {"name": "adam", "lr": 0.001},
            "epochs": epochs,
            "batch_size": BATCH,
        },
        "evaluation": {"intervals": {"kind": "tumbling", "every": "1d", "start": "2024-01-01"}, "metrics": ["accuracy"]},
        "threads": 1,
    }
    (folder / "datasets" / "rows.yaml").write_text(yaml.safe_dump(dataset))
    (folder / "pipelines" / f"{PIPELINE}.yaml").write_text(yaml.safe_dump(pipeline))


def replay_here(name: str, trainings: int) -> None:
    """Replay the pipeline in this process, with the workers of its settings: the program of both sides."""
    from modyn_dagster.pipeline.replay.walk import replay

    with closing(Platform.open(Settings.from_environment())) as platform, open_pool(platform.settings.workers) as pool:
        keys = [batch.partition_key for batch in platform.view("rows").batches][:trainings]
        for _ in replay(platform, ReplayRequest(PIPELINE, keys, "benchmark", name=name), pool=pool):
            pass


def train_here(trainings: int, epochs: int) -> None:
    """Train plain networks of the same size on rows in memory, one after the other: the program beside the replays."""
    import torch

    torch.set_num_threads(1)
    for number in range(trainings):
        torch.manual_seed(number)
        x, y = torch.randn(_EVERY, COLUMNS), torch.randint(2, (_EVERY,))
        wide, narrow = HIDDEN
        layers = [torch.nn.Linear(COLUMNS, wide), torch.nn.ReLU(), torch.nn.Linear(wide, narrow), torch.nn.ReLU()]
        network = torch.nn.Sequential(*layers, torch.nn.Linear(narrow, 2))
        optimizer = torch.optim.Adam(network.parameters(), lr=0.001)
        for _ in range(epochs):
            for chosen in torch.split(torch.randperm(len(x)), BATCH):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(network(x[chosen]), y[chosen]).backward()  # type: ignore[no-untyped-call]  # torch has no type for it
                optimizer.step()


def import_training(number: int) -> int:
    """Import what a worker needs to train; a call of the pool."""
    from modyn_dagster.pipeline.replay.training_ahead import train_ahead

    return number + len(train_ahead.__name__)
