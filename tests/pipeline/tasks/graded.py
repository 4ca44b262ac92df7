"""A stream of points with a grade, numbers and flags as labels, and pipelines that learn a task of them."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import yaml

from modyn_dagster.ingestion.history import import_history
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.load import parse_spec
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, Content, amount, drop

_BEGIN: Final = datetime(2024, 1, 1, tzinfo=UTC)
_ROWS: Final = 40
GRADES: Final = ["low", "middle", "high", "top"]


def text_of(day: int) -> str:
    """The CSV file of a day: points, a grade by their distance along a line, the distance, another number, and two flags."""
    rng = np.random.default_rng([7, day])
    points = rng.normal(size=(_ROWS, 2))
    along = points @ (np.cos(0.2 * day), np.sin(0.2 * day)) + 0.2 * rng.normal(size=_ROWS)
    times = [_BEGIN + timedelta(days=day, minutes=20 * row) for row in range(_ROWS)]
    lines = [
        f"{time:%Y-%m-%dT%H:%M:%S}Z,{x:.6f},{y:.6f},{GRADES[grade]},{value:.6f},{x - y:.6f},{int(value > 0.5)},{int(y > 0)}"
        for time, (x, y), grade, value in zip(times, points, np.digitize(along, [-0.8, 0.0, 0.8]), along)
    ]
    return "\n".join(["time,x,y,grade,distance,height,far,above", *lines, ""])


def dataset(**label: Any) -> Content:
    """The dataset, with the grade as its label unless fields of the label say otherwise."""
    given = {"kind": "class", "classes": GRADES, "from": {"source": "column", "column": "grade"}}
    return {
        "name": DATASET,
        "root": "../data",
        "format": {"kind": "csv"},
        "batches": {"kind": "file", "pattern": "*.csv"},
        "time": {"source": "column", "column": "time"},
        "label": label or given,
        "sensor_interval": 1,
    }


def dataset_spec(content: Content) -> DatasetSpec:
    return parse_spec(content, DatasetSpec, source="dataset")


def deliver(world: World, days: Sequence[int], content: Content, text: Callable[[int], str] = text_of) -> None:
    """Deliver days of a dataset, whose spec is written first."""
    path = world.folder / "datasets" / f"{DATASET}.yaml"
    if not path.exists() or yaml.safe_load(path.read_text()) != content:
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        world.reload()
    for day in days:
        drop(world.folder, f"day_{day:02d}", text(day))
    spec = world.platform.project.datasets[DATASET]
    import_history(world.platform.engine, world.platform.home, spec, world.platform.project.root_of(DATASET))


def learning(task: Content, metrics: Sequence[str], name: str = "graded", **fields: Any) -> Content:
    """A pipeline that learns a task of the columns ``x`` and ``y``."""
    content = amount(name, every=60)
    content["training"] |= {"features": ["x", "y"], "task": task} | fields.pop("training", {})
    content["evaluation"] |= {"metrics": list(metrics)} | fields.pop("evaluation", {})
    return content | fields
