"""W2: predictions of one model for a long stream, divided among workers, against one process."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import sqlalchemy as sa
import yaml

from benchmarks.figures.watched import Watched
from modyn_dagster.catalog.results.evaluations import evaluation
from modyn_dagster.catalog.results.predictions import prediction_file
from modyn_dagster.catalog.runs import list_runs
from modyn_dagster.distributed.opening import open_pool
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.replay.run import ReplayRequest
from modyn_dagster.settings import Settings

PIPELINE: Final = "predicted_once"
DATASET: Final = "long"
#: Rows of a batch, columns, and units of the two hidden layers.
ROWS: Final = 10_000
COLUMNS: Final = 16
HIDDEN: Final = (512, 512)


@dataclass(frozen=True, slots=True)
class Predicted:
    """An evaluation in a process of its own: its times, and the checksums of its prediction files."""

    times: Watched
    checksums: tuple[str, ...]


def write_long_stream(folder: Path, batches: int) -> None:
    """Write a project with a dataset of so many batches, and a pipeline that trains one model on the first of them."""
    for name in ("datasets", "pipelines", "data"):
        (folder / name).mkdir(parents=True)
    names = [f"x{i}" for i in range(COLUMNS)]
    for number in range(batches):
        rng = np.random.default_rng(number)
        x = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
        label = (x[:, :8].sum(axis=1) > 0).astype(int)
        times = np.datetime64("2024-01-01", "s") + number * ROWS + np.arange(ROWS)
        lines = [f"{at}Z,{','.join(f'{value:.4f}' for value in row)},{y}" for at, row, y in zip(times, x, label, strict=True)]
        (folder / "data" / f"batch_{number:04d}.csv").write_text("\n".join([",".join(["time", *names, "label"]), *lines, ""]))
    dataset = {
        "name": DATASET,
        "root": "../data",
        "format": {"kind": "csv"},
        "batches": {"kind": "file", "pattern": "*.csv"},
        "time": {"source": "column", "column": "time"},
        "label": {"kind": "class", "n_classes": 2, "from": {"source": "column", "column": "label"}},
        "split": {"train": 0.1, "evaluate": 0.9},
    }
    pipeline = {
        "name": PIPELINE,
        "dataset": DATASET,
        "trigger": {"kind": "amount", "every": ROWS // 20, "max_triggers": 1},
        "training": {
            "model": {"name": "mlp", "hidden": list(HIDDEN)},
            "optimizer": {"name": "adam", "lr": 0.001},
            "epochs": 1,
            "batch_size": 64,
        },
        "evaluation": {"intervals": {"kind": "tumbling", "every": "1d", "start": "2024-01-01"}, "metrics": ["accuracy"]},
        "threads": 1,
    }
    (folder / "datasets" / f"{DATASET}.yaml").write_text(yaml.safe_dump(dataset))
    (folder / "pipelines" / f"{PIPELINE}.yaml").write_text(yaml.safe_dump(pipeline))


def train_once(platform: Platform) -> None:
    """Replay the pipeline, so that its model is there."""
    from modyn_dagster.pipeline.replay.walk import replay

    keys = [batch.partition_key for batch in platform.view(DATASET).batches]
    for _ in replay(platform, ReplayRequest(PIPELINE, keys, "benchmark")):
        pass


def forget_predictions(platform: Platform) -> None:
    """Remove all scores and rows of predictions, so that the next evaluation makes its own."""
    with platform.transaction() as conn:
        conn.execute(sa.delete(evaluation))
        conn.execute(sa.delete(prediction_file))


def checksums(platform: Platform) -> tuple[str, ...]:
    """Checksums of the prediction files."""
    with platform.transaction() as conn:
        return tuple(conn.execute(sa.select(prediction_file.c.checksum).order_by(prediction_file.c.first_key)).scalars())


def predict_here() -> None:
    """Evaluate the model in this process, with the workers of its settings: the program of both sides."""
    from modyn_dagster.pipeline.stages.trigger_stages import finish_evaluations

    with closing(Platform.open(Settings.from_environment())) as platform, open_pool(platform.settings.workers) as pool:
        with platform.transaction() as conn:
            [run] = list_runs(conn, PIPELINE)
        for _ in finish_evaluations(platform, run, platform.view(DATASET), pool):
            pass
