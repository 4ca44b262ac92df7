"""Stage ``training_set``: select from the window of a trigger and write the training set."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import sqlalchemy as sa

from modyn_dagster.catalog.database.mapping import as_timestamp
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.training_sets import TrainingSetRow, list_training_sets, record_training_set
from modyn_dagster.catalog.timings import record_timing
from modyn_dagster.catalog.triggers import get_trigger, hold
from modyn_dagster.data.windows.label_windows import LabelWindow, Window, range_of, window_details
from modyn_dagster.data.windows.window_columns import WindowColumns
from modyn_dagster.errors import RunError, WithdrawnModel
from modyn_dagster.pipeline.context import Stopwatch, TriggerContext
from modyn_dagster.pipeline.platform import selector_state_path, training_set_path
from modyn_dagster.pipeline.stages.training_set.online_selection import online_selection, online_state
from modyn_dagster.pipeline.stages.training_set.own_selection import changed_code, own_selection
from modyn_dagster.pipeline.stages.training_set.similar_selection import similar_selection
from modyn_dagster.pipeline.stages.training_set.windows import LabelStretches, trigger_window, unlabelled_details
from modyn_dagster.selection import (
    History,
    Selection,
    TrainingSet,
    Usage,
    stage_training_set,
    strategy_at,
)
from modyn_dagster.selection.online import OnlineSelection
from modyn_dagster.selection.own.choice import OwnSelection
from modyn_dagster.spec.online import OnlineSpec
from modyn_dagster.spec.selection import CHOSEN_BY_MODELS, SimilarToUnlabelledSpec, is_usage_aware
from modyn_dagster.spec.strategies.own import CustomStrategySpec, SQLStrategySpec
from modyn_dagster.storage import StagedFile, atomic_write
from modyn_dagster.values.digest import bytes_digest


@dataclass(frozen=True)
class Selected:
    """Selection of a trigger and its window; for an online strategy also its state and the details to record."""

    selection: Selection | OnlineSelection | OwnSelection
    window: Window
    details: dict[str, Any] = field(default_factory=dict)
    state: bytes | None = None


def select_training_set(context: TriggerContext) -> TrainingSetRow:
    """Write the training set of a claimed trigger, and commit file and row while the claim holds.

    Until its model is trained, selecting again replaces file and row, because samples may have been deleted since. For a
    trained or skipped trigger the selection must give the recorded bytes, or ``RunError``; file and state are then written again.
    """
    watch = Stopwatch("select")
    selected = select_samples(context)
    if context.trigger.state in ("trained", "skipped"):
        return _select_again(context, selected)
    with ExitStack() as stack:
        staged, values = stage_selection(context, selected, stack)
        return _commit(context, staged, values, watch)


def stage_selection(
    context: TriggerContext, selected: Selected, stack: ExitStack, version: int | None = None
) -> tuple[list[StagedFile], dict[str, Any]]:
    """Write a selection, and the state of an online strategy before it, under temporary names that the stack removes.

    Returns the files in the order in which they are to be published, and the values of the row. A ``version`` is part of their
    names, for a set that is to stand beside the recorded one.
    """
    relative = _versioned(training_set_path(context.run.id, context.trigger.ordinal), version)
    staged = stack.enter_context(_staged(context, relative))
    written = stage_training_set(staged, selected.selection)
    window = range_of(selected.window)
    span = context.view.time_span(window)
    values: dict[str, Any] = {
        "after": window.after,
        "until": window.until,
        "n_pool": selected.selection.n_pool,
        "n_samples": written.n_samples,
        "time_min": as_timestamp(span[0]) if span else None,
        "time_max": as_timestamp(span[1]) if span else None,
        "path": relative,
        "checksum": written.checksum,
        "details": selected.details | window_details(selected.window) | unlabelled_details(context.view, selected.window),
    }
    if selected.state is None:
        return [staged], values
    path = _versioned(selector_state_path(context.run.id, context.trigger.ordinal), version)
    state = stack.enter_context(_staged(context, path))
    state.write(selected.state)
    state.finish()
    values["details"]["state"] |= {"path": path, "checksum": state.checksum}
    return [state, staged], values


def _versioned(relative: str, version: int | None) -> str:
    """A file's name with a version before its suffixes.

    >>> _versioned("training_sets/000003/000012.state.json", 2)
    'training_sets/000003/000012.d2.state.json'
    """
    if version is None:
        return relative
    path = PurePosixPath(relative)
    stem, _, suffixes = path.name.partition(".")
    return str(path.with_name(f"{stem}.d{version}.{suffixes}"))


def select_samples(context: TriggerContext) -> Selected:
    """Select from the window of a trigger; nothing is written."""
    strategy = strategy_at(context.spec.selection, context.trigger.ordinal)
    if isinstance(strategy, OnlineSpec):
        state = online_state(context, strategy)
        selection, follows, details = online_selection(context, state)
        return Selected(selection, follows, details | {"state": {"strategy": strategy.model_dump(mode="json")}}, state.to_json())
    window = trigger_window(context)
    keys = WindowColumns(context.view, window, context.spec.selection.backend)
    if isinstance(strategy, SimilarToUnlabelledSpec):
        chosen, details = similar_selection(context, strategy, keys)
        return Selected(chosen, window, details)
    if isinstance(strategy, CustomStrategySpec | SQLStrategySpec):
        own, details = own_selection(context, strategy, keys, _history(context, window))
        return Selected(own, window, details)
    place = {"seed": context.run.seed, "trigger": context.trigger.ordinal}
    return Selected(Selection(context.spec.selection, keys, **place, history=_history(context, window)), window)


def _history(context: TriggerContext, window: Window) -> History:
    """Return the stretches of a window and, where the strategy asks for them, the training sets of earlier models."""
    models = context.earlier_models
    ends = [model.key for model in models]
    stretches = LabelStretches(context, window) if isinstance(window, LabelWindow) else None
    if not is_usage_aware(strategy_at(context.spec.selection, context.trigger.ordinal)):
        return History(ends, stretches=stretches)
    with context.platform.transaction() as conn:
        rows = {row.trigger_id: row for row in list_training_sets(conn, context.run.id)}
    sets = []
    for model in models:
        row = rows.get(model.trigger_id)
        if row is None or row.removed_at is not None:
            raise RunError(
                f"trigger {context.trigger.partition_key}: the training set of the earlier trigger with ordinal {model.ordinal} "
                "is gone, and the selection strategy has to know what was used"
            )
        sets.append(open_training_set(context, row))
    return History(ends, Usage(sets), stretches)


def open_training_set(context: TriggerContext, row: TrainingSetRow) -> TrainingSet:
    """Open the training set of a trigger, its checksum verified."""
    return TrainingSet.open(context.platform.home / row.path, row.checksum)


def _select_again(context: TriggerContext, selected: Selected) -> TrainingSetRow:
    recorded = context.training_set
    if recorded is None:
        raise RunError(f"trigger {context.trigger.partition_key} is trained but has no training set; the catalog was changed")
    with _staged(context, recorded.path) as staged:
        written = stage_training_set(staged, selected.selection)
        if written.checksum != recorded.checksum:
            raise RunError(
                f"trigger {context.trigger.partition_key}: selecting again gave another training set "
                f"({written.checksum}, recorded {recorded.checksum}); samples were deleted since, or the code changed"
                f"{changed_code(context, recorded)}"
            )
        with context.platform.transaction() as conn:
            get_trigger(conn, context.trigger.id, lock=True)
            # A process that selected it at the same time may have published the same bytes.
            if staged.is_unpublished:
                staged.publish()
    state = recorded.details.get("state")
    # After a deletion the set may be the same and the state another; the next trigger then computes its own anew.
    if state is not None and selected.state is not None and bytes_digest(selected.state) == state["checksum"]:
        with atomic_write(context.platform.home / state["path"]) as out:
            out.write(selected.state)
    return recorded


def _commit(context: TriggerContext, staged: list[StagedFile], values: dict[str, Any], watch: Stopwatch) -> TrainingSetRow:
    n_bytes = sum(file.size for file in staged)
    trigger = context.trigger
    with context.platform.transaction() as conn:
        hold(conn, trigger)
        _require_choosing_models(conn, context)
        record_timing(conn, context.run.id, trigger.id, trigger.attempt, watch.read(values["n_pool"], n_bytes))
        row = record_training_set(conn, trigger.id, values)
        # Last: only a kill can come between it and the commit, and the next attempt replaces file and row.
        for file in staged:
            file.publish()
        return row


def _require_choosing_models(conn: sa.Connection, context: TriggerContext) -> None:
    """Raise ``WithdrawnModel`` when a deletion request replaced a model by whose losses or gradients samples were chosen."""
    if not isinstance(strategy_at(context.spec.selection, context.trigger.ordinal), CHOSEN_BY_MODELS):
        return
    now = {model.hash for model in list_models(conn, context.run.id)}
    for model in context.earlier_models:
        if model.hash not in now:
            raise WithdrawnModel(model.hash)


@contextmanager
def _staged(context: TriggerContext, relative: str) -> Iterator[StagedFile]:
    """Open a file under a temporary name; it is removed after the block unless it was published."""
    staged = StagedFile(context.platform.home / relative)
    try:
        yield staged
    finally:
        staged.discard()
