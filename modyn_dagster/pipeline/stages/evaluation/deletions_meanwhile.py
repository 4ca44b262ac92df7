"""Deletions while a model is evaluated: no prediction file of a deleted sample, and no result of a withdrawn model, is recorded.

Deletions, and the replacement of the run's models, are locked out of the transaction that compares and records. A plain deletion
leaves the files that are recorded already as they are; a deletion request makes them again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import sqlalchemy as sa

from modyn_dagster.catalog.datasets import get_dataset
from modyn_dagster.catalog.deletions import block_deletions, deletion_stamp
from modyn_dagster.catalog.results.models import ModelRow, find_model
from modyn_dagster.catalog.results.predictions import (
    PredictionFileRow,
    list_predictions,
    remove_predictions,
    replace_predictions,
    same_predictions,
)
from modyn_dagster.catalog.runs import hold_run
from modyn_dagster.errors import StalePredictions, WithdrawnModel
from modyn_dagster.evaluation.predictions.files import WrittenPredictions
from modyn_dagster.files.mounting import files_at
from modyn_dagster.keys import ordinal_of
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.models import predictor_id
from modyn_dagster.pipeline.platform import deletions_of
from modyn_dagster.pipeline.stages.evaluation.training_data import evaluation_set

#: Row of a prediction file, before it is recorded.
Values = Mapping[str, Any]


def lock_out_deletions(conn: sa.Connection, context: TriggerContext, files: Iterable[Values]) -> None:
    """Lock deletions out of the datasets of some prediction files, and of the run, until the transaction ends.

    Raises ``WithdrawnModel`` when a deletion request replaced or withdrew the model of the context's trigger.
    """
    datasets = {context.run.dataset_id} | {get_dataset(conn, _dataset_of(values)).id for values in files}
    # First, and in one order: a deletion under way is waited for, and nobody should wait for the run's row because of it.
    for dataset_id in sorted(datasets):
        block_deletions(conn, dataset_id)
    hold_run(conn, context.run.id)
    model, current = context.model, find_model(conn, context.trigger.id)
    if model is not None and (current is None or current.hash != model.hash):
        raise WithdrawnModel(model.hash)


def stale_files(conn: sa.Connection, context: TriggerContext, model: ModelRow, files: Sequence[Values]) -> list[Values]:
    """Files, not recorded yet, with other samples than those present; ``lock_out_deletions`` came before."""
    predictor = predictor_id(model.hash, context.spec.training)
    recorded = {row.path for row in list_predictions(conn, context.trigger.id, predictor)} if files else set()
    return _stale(conn, context, [values for values in files if values["path"] not in recorded])


def replace_file(context: TriggerContext, row: PredictionFileRow, written: WrittenPredictions) -> None:
    """Record that a file was made again in its place; where that is not allowed any more, remove it.

    Raises:
        StalePredictions: samples in it were deleted meanwhile, or a deletion request has made it again.
        WithdrawnModel: its model was replaced or withdrawn.
    """
    source = row.source or context.spec.dataset
    values = {**asdict(row), "n_samples": written.n_samples, "checksum": written.checksum, "source": source}
    try:
        with context.platform.transaction() as conn:
            lock_out_deletions(conn, context, [values])
            is_recorded = row.id in {each.id for each in list_predictions(conn, row.trigger_id)}
            if is_recorded and written.checksum == row.checksum:
                return
            is_stale = bool(_stale(conn, context, [values]))
            if is_recorded and is_stale:
                remove_predictions(conn, [row.id])
            elif is_recorded:
                replace_predictions(conn, row.id, checksum=written.checksum, n_samples=written.n_samples)
    except WithdrawnModel:
        remove_unrecorded(context, [values])
        raise
    if is_stale or not is_recorded:
        remove_unrecorded(context, [values])
        raise StalePredictions(context.trigger.partition_key, 1)


def remove_unrecorded(context: TriggerContext, files: Iterable[Values]) -> None:
    """Remove prediction files that are not recorded, and that no row names."""
    with context.platform.transaction() as conn:
        named = {row.path for row in list_predictions(conn, context.trigger.id)}
    for values in files:
        if values["path"] not in named:
            path = context.platform.home / values["path"]
            files_at(path).remove(path)


def _stale(conn: sa.Connection, context: TriggerContext, files: Sequence[Values]) -> list[Values]:
    suspects = [values for values in files if not _is_current(conn, values) and not _is_linked(conn, values)]
    if not suspects:
        return []
    # Deletions on other sides of the split change no file.
    data = evaluation_set(replace(context, view=context.view.renewed()))
    stale = []
    for values in suspects:
        first, last = ordinal_of(values["first_key"]), ordinal_of(values["last_key"])
        stretch = [batch for batch in data.view.batches if first <= batch.ordinal <= last]
        n_present = sum(len(np.setdiff1d(data.positions(b), data.view.deleted.positions(b.ordinal))) for b in stretch)
        if n_present != values["n_samples"]:
            stale.append(values)
    return stale


def _dataset_of(values: Values) -> str:
    """Name of the dataset in the source of some predictions."""
    name, *_ = str(values["source"]).split()
    return name


def _is_linked(conn: sa.Connection, values: Values) -> bool:
    """Test that a recorded file of an equal model has the same content; a deletion request makes both again, or neither."""
    names = ("model_hash", "source", "first_key", "last_key")
    equal = same_predictions(conn, *(values[name] for name in names))
    return any(row.checksum == values["checksum"] and row.path != values["path"] for row, _ in equal)


def _is_current(conn: sa.Connection, values: Values) -> bool:
    """Test that nothing was deleted in the batches of a file since it was predicted."""
    dataset_id = get_dataset(conn, _dataset_of(values)).id
    stamp = deletion_stamp(conn, dataset_id, ordinal_of(values["first_key"]), ordinal_of(values["last_key"]))
    return stamp == deletions_of(values["path"])
