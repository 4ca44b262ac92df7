"""A project small enough to train in milliseconds: a stream of daily CSV files and two pipelines over it.

Two classes in two columns; the line between them turns from day to day, so that every model is another one.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

ROOT: Final = Path(__file__).parents[2]
USER_CODE: Final = Path(__file__).parent / "user_code"
DATASET: Final = "tiny"
ROWS: Final = 40
#: Modules that tests make up or bring along, beside those in the project's folder ``code``.
PACKAGES: Final = ("changing_metrics", "counting_cells", "counting_metrics", "own_transforms", "renewed_metrics", "tests")
_BEGIN: Final = datetime(2024, 1, 1, tzinfo=UTC)

#: Fields of a pipeline as its YAML file has them.
Content = dict[str, Any]


def amount(name: str = "by_amount", every: int = 90, **fields: Any) -> Content:
    """A pipeline that trains at every n-th sample."""
    return _pipeline(name, {"kind": "amount", "every": every}) | fields


def exact(content: Content) -> Content:
    """A pipeline with exact predictions of every model."""
    return content | {"evaluation": content["evaluation"] | {"predictions": "exact"}}


def timed(name: str = "by_time", every: str = "3d", **fields: Any) -> Content:
    """A pipeline that trains as days pass, on a subset of what it saw, going on from its previous model."""
    content = _pipeline(name, {"kind": "time", "every": every, "start": "2024-01-01"})
    content["training"] |= {"model": {"name": "mlp", "hidden": [4]}, "use_previous_model": True}
    return content | {"selection": {"window": {"last_triggers": 2}, "limit": 100}} | fields


def triggered(name: str, trigger: Content, **fields: Any) -> Content:
    """A pipeline with any trigger block; its model has a hidden layer, and so embeddings."""
    content = _pipeline(name, trigger)
    content["training"] |= {"model": {"name": "mlp", "hidden": [4]}}
    return content | fields


def custom(name: str, factory: str, *, field: str = "model", config: Mapping[str, Any] | None = None, **fields: Any) -> Content:
    """An amount pipeline with a model, loss or optimizer from user code."""
    content = amount(name, **fields)
    content["training"][field] = {"factory": factory, "config": dict(config or {})}
    return content


def write_project(
    folder: Path,
    pipelines: Sequence[Content],
    *,
    split: Mapping[str, float] | None = None,
    freshness: str | None = None,
    attributes: Sequence[str] = (),
) -> Path:
    """A project folder with one dataset, these pipelines, importable user code, and the repository's Dagster settings."""
    for name in ("datasets", "pipelines", "data"):
        (folder / name).mkdir(parents=True)
    _write_yaml(folder / "datasets" / f"{DATASET}.yaml", _dataset(split, freshness) | {"attributes": list(attributes)})
    _write_yaml(folder / "project.yaml", {"code": {"packages": list(PACKAGES)}})
    for content in pipelines:
        write_pipeline(folder, content)
    for name in ("dagster.yaml", "workspace.yaml"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(USER_CODE, folder / "code", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def write_pipeline(folder: Path, content: Content) -> None:
    """Add a pipeline to a project, or change it."""
    _write_yaml(folder / "pipelines" / f"{content['name']}.yaml", content)


def batch_text(day: int, *, hours_late: float = 0, rows: int = ROWS, shift: float = 0) -> str:
    """The CSV file of a day; all its times lie ``hours_late`` earlier, and its points lie ``shift`` away."""
    rng = np.random.default_rng([day, rows])
    points = rng.normal(size=(rows, 2)) + shift
    angle = 0.3 * day
    labels = (points @ (np.cos(angle), np.sin(angle)) + 0.3 * rng.normal(size=rows) > 0).astype(int)
    begin = _BEGIN + timedelta(days=day, hours=-hours_late)
    times = [begin + timedelta(minutes=20 * row) for row in range(rows)]
    lines = [f"{time:%Y-%m-%dT%H:%M:%S}Z,{x:.6f},{y:.6f},{label}" for time, (x, y), label in zip(times, points, labels)]
    return "\n".join(["time,x,y,label", *lines, ""])


def drop(folder: Path, key: str, text: str) -> None:
    """Deliver a batch file at once, as a producer should: under another name first."""
    path = folder / "data" / f"{key}.csv"
    unfinished = path.with_suffix(".csv.part")
    unfinished.write_text(text)
    os.replace(unfinished, path)


def _write_yaml(path: Path, content: Content) -> None:
    path.write_text(yaml.safe_dump(content, sort_keys=False))


def _dataset(split: Mapping[str, float] | None, freshness: str | None) -> Content:
    content: Content = {
        "name": DATASET,
        "root": "../data",
        "format": {"kind": "csv"},
        "batches": {"kind": "file", "pattern": "*.csv"},
        "time": {"source": "column", "column": "time"},
        "label": {"kind": "class", "n_classes": 2, "from": {"source": "column", "column": "label"}},
        "sensor_interval": 1,
    }
    return content | ({"split": dict(split)} if split else {}) | ({"freshness": {"maximum": freshness}} if freshness else {})


def _pipeline(name: str, trigger: Content) -> Content:
    return {
        "name": name,
        "dataset": DATASET,
        "trigger": trigger,
        "training": {
            "model": {"name": "logistic_regression"},
            "optimizer": {"name": "adam", "lr": 0.05},
            "epochs": 3,
            "batch_size": 16,
        },
        "evaluation": {
            "matrix": "full",
            "intervals": {"kind": "tumbling", "every": "2d", "start": "2024-01-01"},
            "metrics": ["accuracy", "roc_auc", "log_loss"],
        },
        "seed": 7,
        "sensor_interval": 1,
    }
