"""Deletions while a model is trained: a model is committed only if nothing that it was made from is deleted or withdrawn."""

import sqlalchemy as sa

from modyn_dagster.catalog.results.training_sets import TrainingSetRow, find_training_set
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.errors import DeletedKey, WithdrawnModel
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.stages.model.training import calibration_keys, checkpoint_of
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set


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
    if context.previous is not None and run.previous_model != context.run.previous_model:
        # Its steps began with the old weights.
        checkpoint_of(context).remove()
        raise WithdrawnModel(context.previous.hash)
    current = find_training_set(conn, context.trigger.id)
    if current is not None and current.removed_at is not None:
        # Of a set that is still to be trained on, only a deletion request says so.
        raise WithdrawnModel(context.base_hash or "of an earlier trigger")
