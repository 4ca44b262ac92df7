"""Deletions while a model is trained: a model is committed only if nothing that it was made from is deleted or withdrawn.

Of a model that is not committed for that reason nothing stays on the disk.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import sqlalchemy as sa

from modyn_dagster.catalog.results.models import lock_model_removals, model_uses
from modyn_dagster.catalog.results.training_sets import TrainingSetRow, find_training_set
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.errors import DeletedKey, UnknownModel, WithdrawnModel
from modyn_dagster.files.mounting import files_at
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.platform import optimizers_path
from modyn_dagster.pipeline.stages.model.finished_training import FinishedTraining
from modyn_dagster.pipeline.stages.model.training import calibration_keys, checkpoint_of
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set


@contextmanager
def committing(context: TriggerContext, model_hash: str, finished: FinishedTraining | None = None) -> Iterator[None]:
    """Remove a stored model and the files of its training when the block raises because it must not be committed."""
    try:
        yield
    except (DeletedKey, WithdrawnModel):
        if finished is not None:
            finished.file.remove()
        _forget(context, model_hash)
        raise


def _forget(context: TriggerContext, model_hash: str) -> None:
    platform = context.platform
    checkpoint_of(context).remove()
    path = platform.home / optimizers_path(context.run.id, context.trigger.ordinal)
    files_at(path).remove(path)
    with platform.transaction() as conn:
        lock_model_removals(conn)
        if any(use.hash == model_hash and use.removed_at is None for use in model_uses(conn)):
            # An equal model of another trigger.
            return
        platform.models_of(context.spec).delete_unneeded([model_hash])
    with suppress(UnknownModel):
        platform.weight_cache.delete(model_hash)


def require_present(context: TriggerContext, row: TrainingSetRow) -> None:
    """Raise ``DeletedKey`` when a sample was deleted while the model trained on it, or while early stopping watched it."""
    current = context.view.renewed()
    if current is context.view:
        return
    watched = calibration_keys(context, row)
    parts = [partition.keys for partition in open_training_set(context, row).partitions()]
    for keys in parts if watched is None else [*parts, watched]:
        deleted = current.deleted.among(keys)
        if deleted.any():
            raise DeletedKey(int(keys[deleted.argmax()]), current.spec.name)


def require_base(conn: sa.Connection, context: TriggerContext, run: RunRow) -> None:
    """Raise ``WithdrawnModel`` when a deletion request replaced a model that training began with, or that chose its samples.

    The run's row is locked.
    """
    start = context.spec.training.use_previous_model
    if context.previous is not None and run.start_of(start) != context.run.start_of(start):
        raise WithdrawnModel(context.previous.hash)
    current = find_training_set(conn, context.trigger.id)
    if current is not None and current.removed_at is not None:
        # Of a set that is still to be trained on, only a deletion request says so.
        raise WithdrawnModel(context.base_hash or "of an earlier trigger")
