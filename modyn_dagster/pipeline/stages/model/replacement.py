"""Replacement of a trained trigger's model after a deletion: training set, model and scores are made again, or withdrawn.

Everything is made beside what is recorded, under names of its own, and one transaction takes its place. Until then the trigger
has its old model; afterwards nothing in the catalog names that but events of promotions. A kill leaves files that nobody names,
and a second call replaces them.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from modyn_dagster.catalog.deletions import block_deletions
from modyn_dagster.catalog.results.evaluations import list_evaluations, remove_evaluations
from modyn_dagster.catalog.results.models import (
    ModelRow,
    block_model_removals,
    insert_model,
    list_models,
    newest_model,
    remove_model,
)
from modyn_dagster.catalog.results.predictions import list_predictions, remove_predictions
from modyn_dagster.catalog.results.training_sets import (
    TrainingSetRow,
    find_training_set,
    mark_training_sets_removed,
    record_training_set,
)
from modyn_dagster.catalog.runs import RunRow, get_run, move_run, replace_previous_model
from modyn_dagster.catalog.timings import Timing, record_timing
from modyn_dagster.catalog.triggers import find_trigger, forget_mlflow_runs, get_trigger, unfinished_trigger, withdraw
from modyn_dagster.errors import RunError, StaleRun
from modyn_dagster.pipeline.context import Stopwatch, TriggerContext, load_context
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.stages.model.deleted_meanwhile import committing, require_present
from modyn_dagster.pipeline.stages.model.model_saving import store_model
from modyn_dagster.pipeline.stages.model.stage import model_values, stored_bytes
from modyn_dagster.pipeline.stages.model.training import fit, previous_model, save_optimizers
from modyn_dagster.pipeline.stages.training_set.stage import select_samples, stage_selection
from modyn_dagster.selection import strategy_at
from modyn_dagster.spec.selection import CHOSEN_BY_MODELS
from modyn_dagster.training import TrainedModel

#: Called in the transaction that takes the place, with the new row and training set; with None for both when it is withdrawn. It
#: has the run's gate follow, too.
Record = Callable[[sa.Connection, ModelRow | None, TrainingSetRow | None], None]


def replacement_context(
    platform: Platform, pipeline: str, partition_key: str, replaced: Mapping[str, str | None]
) -> TriggerContext:
    """Read the context of a trained trigger, with the model that a training of it would begin with now.

    ``replaced`` maps models to those in whose place they are; None for those that were withdrawn.
    """
    with platform.transaction() as conn:
        trigger = find_trigger(conn, pipeline, partition_key)
        run = get_run(conn, trigger.run_id)
        context = load_context(conn, platform, run, trigger, has_previous=False)
        if not context.spec.training.use_previous_model or context.model is None:
            return context
        if context.earlier_models and context.spec.training.use_previous_model != "champion":
            return replace(context, previous=context.earlier_models[-1])
        recorded = context.model.previous_hash
        began = None if recorded is None else replaced.get(recorded, recorded)
        return context if began is None else replace(context, previous=newest_model(conn, run.id, began))


def replace_model(context: TriggerContext, note: dict[str, Any], version: int, record: Record) -> str | None:
    """Select and train a trained trigger again without the samples that were deleted since, and put it in the old one's place.

    The policy is not told: decisions stay as they are. Returns the new model; None where nothing is left to train on, and the
    trigger is withdrawn. ``note`` is recorded with the model, ``version`` in the names of the files.

    Raises:
        StaleRun: the trigger got another model meanwhile.
        RunError: the trigger has no model.
    """
    _model_of(context)
    watch = Stopwatch("select")
    with ExitStack() as stack:
        staged, values = stage_selection(context, select_samples(context), stack, version)
        if values["n_samples"] == 0:
            withdraw_model(context, "nothing is left to train on", record)
            return None
        for file in staged:
            file.publish()
    selecting = watch.read(values["n_pool"], sum(file.size for file in staged))
    row = TrainingSetRow(trigger_id=context.trigger.id, removed_at=None, **values)
    watch = Stopwatch("train")
    base = None if context.previous is None else previous_model(context, context.previous)
    trained = fit(context, row, previous=base, checkpoint=None)
    training = watch.read(row.n_samples)
    watch = Stopwatch("save")
    model_hash = store_model(context, row, trained, training.seconds)
    save_optimizers(context, trained, model_hash)
    timings = [selecting, training, replace(watch.read(), n_bytes=0)]
    with committing(context, model_hash):
        _swap(context, values, row, trained, model_hash, timings, note, record)
    return model_hash


def withdraw_model(context: TriggerContext, reason: str, record: Record) -> None:
    """Take the model of a trained trigger away, with its scores; the trigger is skipped from now on.

    A run that would go on with the model goes on with its newest one that is left; ``record`` names the champion that follows.
    Raises ``StaleRun`` as ``replace_model``.
    """
    old = _model_of(context)
    with context.platform.transaction() as conn:
        run = get_run(conn, context.run.id, lock=True)
        _clear(conn, context, old)
        mark_training_sets_removed(conn, [context.trigger.id])
        withdraw(conn, get_trigger(conn, context.trigger.id, lock=True), reason)
        left = list_models(conn, run.id)
        _follow(conn, run, old.hash, left[-1].hash if left else None)
        record(conn, None, None)


def _swap(
    context: TriggerContext,
    values: dict[str, Any],
    row: TrainingSetRow,
    trained: TrainedModel,
    model_hash: str,
    timings: list[Timing],
    note: dict[str, Any],
    record: Record,
) -> None:
    trigger, old = context.trigger, _model_of(context)
    with context.platform.transaction() as conn:
        block_deletions(conn, context.run.dataset_id)
        run = get_run(conn, context.run.id, lock=True)
        require_present(context, row)
        block_model_removals(conn)
        stored_bytes(context, row, trained, model_hash, timings[1].seconds)
        is_newest = list_models(conn, run.id)[-1].trigger_id == trigger.id
        _clear(conn, context, old)
        for timing in timings:
            record_timing(conn, run.id, trigger.id, trigger.attempt, timing)
        recorded = record_training_set(conn, trigger.id, values)
        columns = model_values(context, row, trained, model_hash)
        columns["training"] = {**columns["training"], "replacement": note}
        # An older model takes the old one's place in the history of live models.
        created = {} if is_newest else {"created_at": old.created_at}
        model = insert_model(conn, trigger.id, columns | created | {"seconds": old.seconds})
        _follow(conn, run, old.hash, model_hash)
        record(conn, model, recorded)


def _clear(conn: sa.Connection, context: TriggerContext, old: ModelRow) -> None:
    """Remove the rows of a model, its predictions and its scores."""
    trigger = context.trigger
    if not remove_model(conn, trigger.id, old.hash):
        raise StaleRun(f"trigger {trigger.partition_key}")
    remove_predictions(conn, [file.id for file in list_predictions(conn, trigger.id)])
    remove_evaluations(conn, [cell.id for cell in list_evaluations(conn, trigger.run_id, trigger.id, subsets=True)])
    forget_mlflow_runs(conn, [trigger.id])
    _choose_again(conn, context)


def _choose_again(conn: sa.Connection, context: TriggerContext) -> None:
    """Withdraw the training set of an attempt under way whose samples a model of the run has chosen; the run's row is locked."""
    trigger = unfinished_trigger(conn, context.run.id)
    if trigger is None or not isinstance(strategy_at(context.spec.selection, trigger.ordinal), CHOSEN_BY_MODELS):
        return
    # A selection that is being committed is waited for.
    get_trigger(conn, trigger.id, lock=True)
    if find_training_set(conn, trigger.id) is not None:
        mark_training_sets_removed(conn, [trigger.id])


def _follow(conn: sa.Connection, run: RunRow, old: str, new: str | None) -> None:
    """Let the run, and one that is to begin with its model, go on with another model."""
    if run.previous_model == old:
        move_run(conn, run, previous_model=new)
        replace_previous_model(conn, run, old, new)


def _model_of(context: TriggerContext) -> ModelRow:
    if context.model is None:
        raise RunError(f"trigger {context.trigger.partition_key} is {context.trigger.state}: it has no model to replace")
    return context.model
