"""The stage ``training_set``: select the window of a trigger and write what was chosen."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from modyn_dagster.catalog.database.mapping import as_timestamp
from modyn_dagster.catalog.results.models import ModelRow, list_models
from modyn_dagster.catalog.results.training_sets import TrainingSetRow, find_training_set, record_training_set
from modyn_dagster.catalog.timings import record_timing
from modyn_dagster.catalog.triggers import get_trigger, hold
from modyn_dagster.data.window_columns import WindowColumns
from modyn_dagster.errors import RunError
from modyn_dagster.pipeline.context import Stopwatch, TriggerContext
from modyn_dagster.pipeline.platform import selector_state_path, training_set_path
from modyn_dagster.pipeline.stages.training_set.online_selection import online_selection, online_state
from modyn_dagster.selection import (
    History,
    KeyRange,
    Selection,
    TrainingSet,
    Usage,
    stage_training_set,
    strategy_at,
    window_of,
)
from modyn_dagster.selection.online import OnlineSelection
from modyn_dagster.spec.online import OnlineSpec
from modyn_dagster.spec.selection import USAGE_AWARE
from modyn_dagster.storage import StagedFile


@dataclass(frozen=True)
class _Chosen:
    """What a trigger trains on, the window it stands for, and of an online strategy its state and what is told of it."""

    selection: Selection | OnlineSelection
    window: KeyRange
    details: dict[str, Any] = field(default_factory=dict)
    state: bytes | None = None


def select_training_set(context: TriggerContext) -> TrainingSetRow:
    """Write the training set of a claimed trigger and commit file and row while the claim holds; else neither is touched.

    Selected again before its model is trained, what is found now replaces file and row: samples may have been deleted since. On
    a trained trigger the same bytes must be found, or ``RunError``, and the file that the model was trained on stays; one that
    retention or an accident removed is there again afterwards.
    """
    watch = Stopwatch("select")
    chosen = _choose(context)
    if context.trigger.state == "trained":
        return _select_again(context, chosen.selection)
    relative = training_set_path(context.run.id, context.trigger.ordinal)
    with ExitStack() as stack:
        staged = stack.enter_context(_staged(context, relative))
        written = stage_training_set(staged, chosen.selection)
        span = context.view.time_span(chosen.window)
        values: dict[str, Any] = {
            "after": chosen.window.after,
            "until": chosen.window.until,
            "n_pool": chosen.selection.n_pool,
            "n_samples": written.n_samples,
            "time_min": as_timestamp(span[0]) if span else None,
            "time_max": as_timestamp(span[1]) if span else None,
            "path": relative,
            "checksum": written.checksum,
            "details": chosen.details,
        }
        if chosen.state is None:
            return _commit(context, [staged], values, watch)
        path = selector_state_path(context.run.id, context.trigger.ordinal)
        state = stack.enter_context(_staged(context, path))
        state.write(chosen.state)
        state.finish()
        values["details"]["state"] |= {"path": path, "checksum": state.checksum}
        return _commit(context, [state, staged], values, watch)


def _choose(context: TriggerContext) -> _Chosen:
    strategy = strategy_at(context.spec.selection, context.trigger.ordinal)
    if isinstance(strategy, OnlineSpec):
        state = online_state(context, strategy)
        selection, window, details = online_selection(context, state)
        return _Chosen(selection, window, details | {"state": {"strategy": strategy.model_dump(mode="json")}}, state.to_json())
    window = trigger_window(context)
    keys = WindowColumns(context.view, window, context.spec.selection.backend)
    place = {"seed": context.run.seed, "trigger": context.trigger.ordinal}
    return _Chosen(Selection(context.spec.selection, keys, **place, history=_history(context)), window)


def trigger_window(context: TriggerContext) -> KeyRange:
    """The key range a trigger's training set is selected from."""
    trained = [model.key for model in _earlier_models(context)]
    window = context.spec.selection.window
    return window_of(window, until=context.trigger.key, trained=trained, origin=context.run.origin)


def _earlier_models(context: TriggerContext) -> list[ModelRow]:
    with context.platform.transaction() as conn:
        models = list_models(conn, context.run.id)
    return [model for model in models if model.ordinal < context.trigger.ordinal]


def _history(context: TriggerContext) -> History:
    """Where earlier windows ended and, where the strategy asks, what their models were trained on."""
    models = _earlier_models(context)
    ends = [model.key for model in models]
    if not isinstance(strategy_at(context.spec.selection, context.trigger.ordinal), USAGE_AWARE):
        return History(ends)
    sets = []
    for model in models:
        with context.platform.transaction() as conn:
            row = find_training_set(conn, model.trigger_id)
        if row is None or row.removed_at is not None:
            raise RunError(
                f"trigger {context.trigger.partition_key}: the training set of the earlier trigger with ordinal {model.ordinal} "
                "is gone, and the selection strategy has to know what was used"
            )
        sets.append(open_training_set(context, row))
    return History(ends, Usage(sets))


def open_training_set(context: TriggerContext, row: TrainingSetRow) -> TrainingSet:
    """The training set of a trigger, its checksum verified."""
    return TrainingSet.open(context.platform.home / row.path, row.checksum)


def _select_again(context: TriggerContext, selection: Selection | OnlineSelection) -> TrainingSetRow:
    with context.platform.transaction() as conn:
        recorded = find_training_set(conn, context.trigger.id)
    if recorded is None:
        raise RunError(f"trigger {context.trigger.partition_key} is trained but has no training set; the catalog was changed")
    with _staged(context, recorded.path) as staged:
        written = stage_training_set(staged, selection)
        if written.checksum != recorded.checksum:
            raise RunError(
                f"trigger {context.trigger.partition_key}: selecting again gave another training set "
                f"({written.checksum}, recorded {recorded.checksum}); samples were deleted since, or the code changed"
            )
        with context.platform.transaction() as conn:
            get_trigger(conn, context.trigger.id, lock=True)
            # Whoever selected it at the same time and was first has published the same bytes.
            if staged.is_unpublished:
                staged.publish()
    return recorded


def _commit(context: TriggerContext, staged: list[StagedFile], values: dict[str, Any], watch: Stopwatch) -> TrainingSetRow:
    n_bytes = sum(file.size for file in staged)
    trigger = context.trigger
    with context.platform.transaction() as conn:
        hold(conn, trigger)
        record_timing(conn, context.run.id, trigger.id, trigger.attempt, watch.read(values["n_pool"], n_bytes))
        row = record_training_set(conn, trigger.id, values)
        # Last: between it and the commit only a kill can come, and whatever attempt follows replaces file and row.
        for file in staged:
            file.publish()
        return row


@contextmanager
def _staged(context: TriggerContext, relative: str) -> Iterator[StagedFile]:
    """A training set under a temporary name, gone after the block unless it was published."""
    staged = StagedFile(context.platform.home / relative)
    try:
        yield staged
    finally:
        staged.discard()
