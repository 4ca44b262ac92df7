"""The stage ``training_set``: select the window of a trigger and write what was chosen."""

from typing import Any

from modyn_dagster.catalog.models import list_models
from modyn_dagster.catalog.moments import as_timestamp
from modyn_dagster.catalog.timings import record_timing
from modyn_dagster.catalog.training_sets import TrainingSetRow, find_training_set, record_training_set
from modyn_dagster.catalog.triggers import hold
from modyn_dagster.errors import RunError
from modyn_dagster.pipeline.context import Stopwatch, TriggerContext
from modyn_dagster.pipeline.paths import training_set_path
from modyn_dagster.selection import KeyRange, Selection, TrainingSet, window_of, write_training_set


def select_training_set(context: TriggerContext) -> TrainingSetRow:
    """Write the training set of a claimed trigger and commit its row while the claim holds.

    On a trained trigger it selects again and must find the same bytes, or ``RunError``; a file that retention or an accident
    removed is there again afterwards.
    """
    watch = Stopwatch("select")
    window = trigger_window(context)
    selection = Selection(
        context.spec.selection,
        context.view.train_keys(window, context.spec.selection.backend),
        seed=context.run.seed,
        trigger=context.trigger.ordinal,
    )
    relative = training_set_path(context.run.id, context.trigger.ordinal)
    written = write_training_set(context.platform.home / relative, selection)
    span = context.view.time_span(window)
    values: dict[str, Any] = {
        "after": window.after,
        "until": window.until,
        "n_pool": selection.n_pool,
        "n_samples": written.n_samples,
        "time_min": as_timestamp(span[0]) if span else None,
        "time_max": as_timestamp(span[1]) if span else None,
        "path": relative,
        "checksum": written.checksum,
    }
    return _commit(context, values, watch)


def trigger_window(context: TriggerContext) -> KeyRange:
    """The key range a trigger's training set is selected from."""
    with context.platform.transaction() as conn:
        models = list_models(conn, context.run.id)
    trained = [model.key for model in models if model.ordinal < context.trigger.ordinal]
    window = context.spec.selection.window
    return window_of(window, until=context.trigger.key, trained=trained, origin=context.run.origin)


def open_training_set(context: TriggerContext, row: TrainingSetRow) -> TrainingSet:
    """The training set of a trigger, its checksum verified."""
    return TrainingSet.open(context.platform.home / row.path, row.checksum)


def _commit(context: TriggerContext, values: dict[str, Any], watch: Stopwatch) -> TrainingSetRow:
    trigger = context.trigger
    with context.platform.transaction() as conn:
        if trigger.state != "trained":
            hold(conn, trigger)
        earlier = find_training_set(conn, trigger.id)
        if earlier is not None and earlier.checksum != values["checksum"]:
            raise RunError(
                f"trigger {trigger.partition_key}: selecting again gave another training set "
                f"({values['checksum']}, recorded {earlier.checksum}); samples were deleted since, or the code changed"
            )
        if trigger.state != "trained":
            timing = watch.read(values["n_pool"])
            record_timing(conn, context.run.id, trigger.id, trigger.attempt, timing)
        return record_training_set(conn, trigger.id, values)
