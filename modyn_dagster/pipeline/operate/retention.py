"""Retention: the newest triggers of each run keep their training sets and predictions; catalog rows stay for good."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from modyn_dagster.catalog.results.predictions import mark_predictions_removed, predictions_of_triggers
from modyn_dagster.catalog.results.training_sets import list_training_sets, mark_training_sets_removed
from modyn_dagster.catalog.runs import RunRow, list_runs
from modyn_dagster.catalog.triggers import TriggerRow, list_triggers
from modyn_dagster.files.mounting import files_at
from modyn_dagster.pipeline.operate.model_retention import NO_MODELS, AliasedModels, RemovedModels, no_aliases, retain_models
from modyn_dagster.pipeline.platform import Platform, checkpoint_path, optimizers_path
from modyn_dagster.storage import inside, sweep_abandoned
from modyn_dagster.training.checkpoint.parts import SUFFIXES

#: Seconds after which a temporary file counts as abandoned by its writer.
ABANDONED: Final = 86_400.0
#: Folders of the home folder with files that are written under temporary names.
_FOLDERS: Final = ("batches", "shards", "labels", "training_sets", "predictions", "checkpoints", "optimizers", "ahead")


@dataclass(frozen=True, slots=True)
class Removed:
    """Numbers of files that retention removed, and their bytes."""

    training_sets: int = 0
    predictions: int = 0
    optimizers: int = 0
    checkpoints: int = 0
    n_bytes: int = 0
    models: RemovedModels = NO_MODELS


def apply_retention(platform: Platform, aliased: AliasedModels = no_aliases) -> Removed:
    """Apply every pipeline's ``retention`` to all its runs; a second call removes nothing more.

    Files of pending and training triggers are never touched, only those of trained and skipped ones. Rows are marked first and
    files removed afterwards, so a kill in between leaves a file that the next call removes. A model whose predictions were
    removed keeps its scores and is not evaluated on new data any more. ``aliased`` names models with an alias in MLflow.

    Temporary files of killed writers go as well once they are a day old.
    """
    removed = Counter[str]()
    with platform.transaction() as conn:
        runs = [run for run in list_runs(conn) if run.pipeline in platform.project.pipelines]
    for run in runs:
        with platform.transaction() as conn:
            paths = _mark_removed(conn, platform, run, removed)
        removed["n_bytes"] += _unlink(platform, paths)
    removed["n_bytes"] += sum(sweep_abandoned(platform.home / folder, ABANDONED) for folder in _FOLDERS)
    removed["n_bytes"] += sweep_abandoned(platform.settings.reports_folder, ABANDONED)
    return Removed(**removed, models=retain_models(platform, aliased))


def _mark_removed(conn: sa.Connection, platform: Platform, run: RunRow, removed: Counter[str]) -> list[str]:
    """Mark the rows of a run's old files as removed, count them in ``removed``, and return the paths of the files."""
    keep = platform.project.pipelines[run.pipeline].retention
    triggers = list_triggers(conn, run.id, ["trained", "skipped"])
    paths: list[str] = []
    if keep.training_sets is not None:
        old = {trigger.id for trigger in triggers[: -keep.training_sets]}
        rows = [row for row in list_training_sets(conn, run.id) if row.trigger_id in old]
        present = [row.trigger_id for row in rows if row.removed_at is None]
        mark_training_sets_removed(conn, present)
        removed["training_sets"] += len(present)
        paths += [row.path for row in rows] + [row.details["state"]["path"] for row in rows if "state" in row.details]
    if keep.predictions is not None:
        files = predictions_of_triggers(conn, [trigger.id for trigger in triggers[: -keep.predictions]])
        present = [file.id for file in files if file.removed_at is None]
        mark_predictions_removed(conn, present)
        removed["predictions"] += len(present)
        paths += [file.path for file in files]
    if keep.optimizers is not None:
        optimizers = [optimizers_path(run.id, trigger.ordinal) for trigger in triggers[: -keep.optimizers]]
        removed["optimizers"] += _n_present(platform, optimizers)
        paths += optimizers
    # A kill after the commit of a model leaves its checkpoint; a trigger that failed for good leaves one, too.
    failed: Sequence[TriggerRow] = [] if run.state == "waiting" else list_triggers(conn, run.id, ["failed"])
    checkpoints = [
        checkpoint_path(run.id, trigger.ordinal) + suffix for trigger in [*triggers, *failed] for suffix in ("", *SUFFIXES)
    ]
    removed["checkpoints"] += _n_present(platform, checkpoints)
    return paths + checkpoints


def _n_present(platform: Platform, paths: Sequence[str]) -> int:
    return len(files_at(platform.home).sizes([platform.home / path for path in paths]))


def _unlink(platform: Platform, paths: Sequence[str]) -> int:
    files = files_at(platform.home)
    sizes = files.sizes([inside(platform.home, relative) for relative in paths])
    for path in sizes:
        files.remove(path)
    return sum(sizes.values())
