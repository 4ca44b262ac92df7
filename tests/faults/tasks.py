"""Tasks of disturbed processes: steps of a history, by the packages' own functions and without Dagster.

Each may be repeated after a kill or an error, and is then completed; arguments are values of JSON.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import torch

from modyn_dagster.catalog.batches import REPLACES, list_batches
from modyn_dagster.catalog.runs import list_runs
from modyn_dagster.errors import UnknownModel, UnknownName
from modyn_dagster.ingestion.deletion.delete import delete_samples
from modyn_dagster.ingestion.deletion.purge import purge_samples
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.ingestion.replacement import replace_batch, replaceable_batch
from modyn_dagster.pipeline.decide.live_run import resume_run
from modyn_dagster.pipeline.operate.removal.completion import complete
from modyn_dagster.pipeline.operate.removal.pipelines import commit_pipeline_removal, plan_pipeline_removal
from modyn_dagster.pipeline.operate.retention import ABANDONED, apply_retention
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.settings import Settings
from tests.faults import power_cut
from tests.pipeline.world import World
from tests.projects.tiny import DATASET


@contextmanager
def _world(settings: Settings) -> Iterator[World]:
    world = World(settings.project, settings)
    try:
        yield world
    finally:
        world.close()


def remember_all(settings: Settings, shadow: str) -> None:
    """Note the home folder as durable."""
    power_cut.remember_all(settings.home, Path(shadow))


def ingest(settings: Settings) -> None:
    """Import what lies in the dataset's folder."""
    with _world(settings) as world:
        _ingest(world.platform)


def _ingest(platform: Platform) -> None:
    spec = platform.project.datasets[DATASET]
    import_history(platform.engine, platform.home, spec, platform.project.root_of(DATASET))


def replay(settings: Settings, pipeline: str) -> None:
    """Replay all batches."""
    with _world(settings) as world:
        world.replay(pipeline)


def live(settings: Settings, pipeline: str) -> None:
    """Tick, train and evaluate as sensor and runs would, until nothing is left to do."""
    with _world(settings) as world:
        world.live_until_idle(pipeline)


def delete(settings: Settings, keys: list[int]) -> None:
    """Delete samples, and purge every other one of them."""
    with _world(settings) as world:
        platform = world.platform
        row = platform.view(DATASET).row
        chosen = np.array(keys, np.uint64)
        delete_samples(platform.engine, platform.home, row, chosen, "history")
        purge_samples(platform.engine, platform.home, platform.project.datasets[DATASET], row, chosen[::2])


def replace(settings: Settings, key: str) -> None:
    """Replace a batch by its corrected file."""
    with _world(settings) as world:
        platform = world.platform
        # A call before may have registered the replacement, or all but the closing of its process.
        _ingest(platform)
        with platform.transaction() as conn:
            replaced = [
                batch for batch in list_batches(conn, platform.view(DATASET).row.id) if key in batch.source.get(REPLACES, [])
            ]
        if not replaced:
            spec, root = platform.project.datasets[DATASET], platform.project.root_of(DATASET)
            replace_batch(platform.engine, platform.home, spec, root, replaceable_batch(platform.engine, spec, root, key))


def retain(settings: Settings) -> None:
    """Apply retention a day later, and remove what killed writers left in the model store."""
    for path in settings.home.rglob(".*.tmp"):
        os.utime(path, (path.stat().st_mtime - 2 * ABANDONED,) * 2)
    with _world(settings) as world:
        apply_retention(world.platform)
        world.platform.model_store.gc()


def remove(settings: Settings, pipeline: str) -> None:
    """Remove a pipeline with its runs, files and models."""
    with _world(settings) as world:
        # A call before may have committed it.
        with suppress(UnknownName):
            commit_pipeline_removal(world.platform, plan_pipeline_removal(world.platform, pipeline, rebase=True))
        complete(world.platform, "pipeline", pipeline, lambda plan: iter(()))


def resume(settings: Settings, pipeline: str) -> None:
    """Resume every run that waits for a person, as that person does when the fault is gone."""
    with _world(settings) as world:
        with world.platform.transaction() as conn:
            waiting = [run for run in list_runs(conn, pipeline) if run.state == "waiting"]
        for run in waiting:
            resume_run(world.platform, run)


def save_and_delete(settings: Settings, seed: int) -> None:
    """Store a model and one that is based on it, and delete the first: the other has to stand alone."""
    with _world(settings) as world:
        store = world.platform.model_store
        generator = torch.Generator().manual_seed(seed)
        weights = {name: torch.randn(64, 64, generator=generator) for name in ("one", "other")}
        first = store.save(weights, strategy="snapshot")
        second = store.save(weights | {"other": weights["other"] + 1}, base=first)
        with suppress(UnknownModel):
            store.delete(first, rebase=True)
        assert torch.equal(store.load(second)["one"], weights["one"])
