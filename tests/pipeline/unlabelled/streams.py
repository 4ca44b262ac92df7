"""Worlds whose dataset has no label, and pipelines on them."""

from collections.abc import Callable, Sequence
from typing import Any

import yaml

from modyn_dagster.ingestion.history import import_history
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, Content, amount, batch_text, drop

MakeWorld = Callable[..., World]

AUTOENCODER: Content = {"model": {"name": "mlp", "hidden": [3, 1, 3]}, "loss": {"name": "reconstruction"}}
#: A label that a stream may have in place of none.
CONSTANT: Content = {"kind": "class", "n_classes": 2, "from": {"source": "column", "column": "label"}}
ERRORS = ["reconstruction_mse", "reconstruction_mae"]


def unlabelled(content: Content, metrics: Sequence[str] = ERRORS, **training: Any) -> Content:
    """Train a pipeline without labels: by default an autoencoder."""
    content["training"] |= training or AUTOENCODER
    content["evaluation"] |= {"metrics": list(metrics)}
    return content


def autoencoder(**fields: Any) -> Content:
    return unlabelled(amount(**fields))


def world_without_label(
    world_of: MakeWorld, *pipelines: Content, label: object = None, dataset: str = DATASET, **options: Any
) -> World:
    """Make a world whose dataset says ``label: {kind: none}``, or has another label."""
    world = world_of(**options)
    path = world.folder / "datasets" / f"{DATASET}.yaml"
    content = yaml.safe_load(path.read_text()) | {"name": dataset, "label": {"kind": "none"} if label is None else label}
    path.unlink()
    path.with_name(f"{dataset}.yaml").write_text(yaml.safe_dump(content))
    for pipeline in pipelines:
        (world.folder / "pipelines" / f"{pipeline['name']}.yaml").write_text(yaml.safe_dump(pipeline))
    world.reload()
    return world


def deliver(world: World, days: Sequence[int], *, shift: float = 0, constant: str | None = None, dataset: str = DATASET) -> None:
    """Deliver days without the column of labels, or with a constant one."""
    for day in days:
        _, *rows = batch_text(day, shift=shift).splitlines()
        ends = "" if constant is None else f",{constant}"
        lines = [row.rpartition(",")[0] + ends for row in rows]
        drop(world.folder, f"day_{day:02d}", "\n".join(["time,x,y" + ("" if constant is None else ",label"), *lines, ""]))
    spec = world.platform.project.datasets[dataset]
    import_history(world.platform.engine, world.platform.home, spec, world.platform.project.root_of(dataset))
