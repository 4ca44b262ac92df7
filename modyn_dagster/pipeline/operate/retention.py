"""Retention: of each run, only the newest triggers keep their training sets and predictions; rows stay for good."""

from collections.abc import Sequence
from dataclasses import dataclass

from modyn_dagster.catalog.results.predictions import list_predictions, mark_predictions_removed
from modyn_dagster.catalog.results.training_sets import find_training_set, mark_training_sets_removed
from modyn_dagster.catalog.runs import RunRow, list_runs
from modyn_dagster.catalog.triggers import TriggerRow, list_triggers
from modyn_dagster.pipeline.platform import Platform, checkpoint_path, optimizers_path
from modyn_dagster.storage import inside
from modyn_dagster.training.checkpoint.parts import SUFFIXES


@dataclass(frozen=True, slots=True)
class Removed:
    """How many files retention removed, and their bytes."""

    training_sets: int = 0
    predictions: int = 0
    optimizers: int = 0
    checkpoints: int = 0
    n_bytes: int = 0

    def __add__(self, other: "Removed") -> "Removed":
        return Removed(
            self.training_sets + other.training_sets,
            self.predictions + other.predictions,
            self.optimizers + other.optimizers,
            self.checkpoints + other.checkpoints,
            self.n_bytes + other.n_bytes,
        )


def apply_retention(platform: Platform) -> Removed:
    """Apply every pipeline's ``retention`` to all its runs; calling it again removes nothing more.

    What a pending or training trigger needs is never touched: only trained and skipped triggers are looked at. Rows are
    marked first and files go afterwards, so a kill in between leaves a file that the next call removes. A model whose
    predictions were removed keeps its scores and is not judged on new data any more.
    """
    removed = Removed()
    with platform.transaction() as conn:
        runs = [run for run in list_runs(conn) if run.pipeline in platform.project.pipelines]
    for run in runs:
        removed += _apply(platform, run)
    return removed


def _apply(platform: Platform, run: RunRow) -> Removed:
    keep = platform.project.pipelines[run.pipeline].retention
    with platform.transaction() as conn:
        done = list_triggers(conn, run.id, ["trained", "skipped"])
    removed = Removed()
    if keep.training_sets is not None:
        removed += _remove_training_sets(platform, done[: -keep.training_sets])
    if keep.predictions is not None:
        removed += _remove_predictions(platform, done[: -keep.predictions])
    if keep.optimizers is not None:
        paths = [optimizers_path(run.id, trigger.ordinal) for trigger in done[: -keep.optimizers]]
        removed += Removed(optimizers=sum((platform.home / path).is_file() for path in paths), n_bytes=_unlink(platform, paths))
    return removed + _remove_checkpoints(platform, run, done)


def _remove_checkpoints(platform: Platform, run: RunRow, done: Sequence[TriggerRow]) -> Removed:
    """What a kill between the commit of a model and its end left, and what a trigger that failed for good will not go on from."""
    over = list(done)
    if run.state != "waiting":
        with platform.transaction() as conn:
            over += list_triggers(conn, run.id, ["failed"])
    paths = [checkpoint_path(run.id, trigger.ordinal) + suffix for trigger in over for suffix in ("", *SUFFIXES)]
    return Removed(checkpoints=sum((platform.home / path).is_file() for path in paths), n_bytes=_unlink(platform, paths))


def _remove_training_sets(platform: Platform, triggers: Sequence[TriggerRow]) -> Removed:
    with platform.transaction() as conn:
        rows = [row for trigger in triggers if (row := find_training_set(conn, trigger.id))]
        mark_training_sets_removed(conn, [row.trigger_id for row in rows if row.removed_at is None])
    paths = [row.path for row in rows] + [row.details["state"]["path"] for row in rows if "state" in row.details]
    return Removed(training_sets=sum(row.removed_at is None for row in rows), n_bytes=_unlink(platform, paths))


def _remove_predictions(platform: Platform, triggers: Sequence[TriggerRow]) -> Removed:
    with platform.transaction() as conn:
        files = [file for trigger in triggers for file in list_predictions(conn, trigger.id)]
        mark_predictions_removed(conn, [file.id for file in files if file.removed_at is None])
    return Removed(
        predictions=sum(file.removed_at is None for file in files), n_bytes=_unlink(platform, [file.path for file in files])
    )


def _unlink(platform: Platform, paths: Sequence[str]) -> int:
    n_bytes = 0
    for relative in paths:
        path = inside(platform.home, relative)
        if path.is_file():
            n_bytes += path.stat().st_size
            path.unlink()
    return n_bytes
