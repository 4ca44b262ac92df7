"""Events of assets in bulk: one transaction for many, where single ones cost several round trips each.

Dagster writes events in bulk only for outputs of one asset, and results of checks never, so this module builds the entries
itself. It is the only one that uses ``dagster._core``; where that has changed, the caller gives Dagster single events instead.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import dagster as dg
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

if TYPE_CHECKING:
    from dagster._core.events.log import EventLogEntry

#: A statement of ours that takes longer, in milliseconds, waits for a lock that nobody releases.
_STATEMENT_TIMEOUT: Final = 600_000
#: Columns of Dagster's table of check executions that are unique together.
_EXECUTION: Final = ("asset_key", "check_name", "run_id", "partition")

AssetEvent = dg.AssetMaterialization | dg.AssetCheckEvaluation


def keep_connections(instance: dg.DagsterInstance) -> None:
    """Keep the connections of an instance's storage open, as Dagster's web server does: a new one costs more than a statement."""
    instance.optimize_for_webserver(statement_timeout=_STATEMENT_TIMEOUT, pool_recycle=3_600, max_overflow=20)


def plan_in_bulk(instance: dg.DagsterInstance) -> None:
    """Let this process store the events with which a run announces its partitions together; Dagster does so one by one."""
    try:
        from dagster_postgres import PostgresEventLogStorage

        storage = instance.event_log_storage
        if not isinstance(storage, PostgresEventLogStorage):
            return
        one_by_one, store = storage.store_event_batch, _planner(storage)
    except (ImportError, AttributeError):
        return

    def store_batch(entries: Sequence[EventLogEntry]) -> None:
        if not store(entries):
            one_by_one(entries)

    storage.store_event_batch = store_batch  # type: ignore[method-assign,assignment]
    # Otherwise Dagster never makes a batch.
    os.environ.setdefault("DAGSTER_EVENT_BATCH_SIZE", "500")


def _planner(storage: Any) -> Callable[[Sequence[EventLogEntry]], bool]:
    """Function that stores events of planned materializations, and does nothing with others but return False."""
    from dagster._core.events import DagsterEventType
    from dagster._core.storage.event_log.schema import SqlEventLogStorageTable

    store_asset = storage._store_asset_event

    def store(entries: Sequence[EventLogEntry]) -> bool:
        events = [entry.dagster_event for entry in entries]
        if any(event is None or event.event_type is not DagsterEventType.ASSET_MATERIALIZATION_PLANNED for event in events):
            return False
        try:
            with storage.index_transaction() as conn:
                added = storage.prepare_insert_event_batch(entries).returning(SqlEventLogStorageTable.c.id)
                ids = [int(row[0]) for row in conn.execute(added)]
                # The asset's row shows the newest event alone.
                newest = {entry.get_dagster_event().asset_key: (entry, row) for entry, row in zip(entries, ids, strict=True)}
                for entry, event_id in newest.values():
                    store_asset(conn, entry, event_id)
        except sa.exc.ProgrammingError:  # another schema than this Dagster's: the transaction is undone
            return False
        return True

    return store


def store_in_bulk(context: dg.AssetExecutionContext, events: Sequence[AssetEvent]) -> bool:
    """Store events as if the op had yielded them: all, or none if the process dies meanwhile.

    Args:
        context: of the op.
        events: of any assets, checks of partitions alone; they keep their order. A failed blocking check fails no step here.

    Returns:
        False, with nothing stored, if this version of Dagster has no such entries or tables.
    """
    try:
        step = context.op_execution_context.get_step_execution_context()
        of_step = {
            "job_name": step.job_name,
            "step_handle": step.step.handle,
            "node_handle": step.step.node_handle,
            "step_kind_value": step.step.kind.value,
            "logging_tags": step.event_tags,
            "pid": os.getpid(),
        }
        entries = [_entry(event, of_step, context.run.run_id, logging.DEBUG, _text(event)) for event in events]
        store = _writer(context.instance)
    except (ImportError, AttributeError, TypeError):
        return False
    return store(entries)


def show_at_once(context: dg.AssetExecutionContext, events: Sequence[AssetEvent]) -> Iterator[AssetEvent]:
    """Store events in bulk, and return those that the op has to yield itself: failed blocking checks, which fail its step.

    All of them if this version of Dagster has no such entries or tables.
    """
    fails = [event for event in events if _fails_step(event)]
    yield from fails if store_in_bulk(context, [event for event in events if not _fails_step(event)]) else events


def _fails_step(event: AssetEvent) -> bool:
    """True for a failed blocking check: Dagster fails the step for it if it is yielded."""
    return isinstance(event, dg.AssetCheckEvaluation) and event.blocking is True and not event.passed


def report_in_bulk(instance: dg.DagsterInstance, events: Sequence[AssetEvent]) -> bool:
    """Store events of no run, as ``DagsterInstance.report_runless_asset_event`` does one by one: all, or none.

    Returns False, with nothing stored, if this version of Dagster has no such entries or tables.
    """
    try:
        from dagster._core.instance.utils import RUNLESS_JOB_NAME, RUNLESS_RUN_ID

        entries = [_entry(event, {"job_name": RUNLESS_JOB_NAME}, RUNLESS_RUN_ID, logging.INFO, None) for event in events]
        store = _writer(instance)
    except (ImportError, AttributeError, TypeError):
        return False
    return store(entries)


def _text(event: AssetEvent) -> str:
    """Message of an event in the log of its run, as Dagster words it."""
    if isinstance(event, dg.AssetMaterialization):
        return event.description or f"Materialized value {event.label}."
    verdict = "passed." if event.passed else "did not pass."
    told = "" if event.description is None else f" Description: '{event.description}'"
    return f"Asset check '{event.check_name}' on '{event.asset_key.to_user_string()}' {verdict}{told}"


def _entry(event: AssetEvent, origin: Mapping[str, Any], run_id: str, level: int, text: str | None) -> EventLogEntry:
    from dagster._core.events import DagsterEvent, DagsterEventType, StepMaterializationData
    from dagster._core.events.log import EventLogEntry

    is_check = isinstance(event, dg.AssetCheckEvaluation)
    kind = DagsterEventType.ASSET_CHECK_EVALUATION if is_check else DagsterEventType.ASSET_MATERIALIZATION
    content = event if isinstance(event, dg.AssetCheckEvaluation) else StepMaterializationData(event)
    made = DagsterEvent(event_type_value=kind.value, event_specific_data=content, message=text, **origin)
    return EventLogEntry(  # type: ignore[no-untyped-call]  # Dagster builds the class at run time
        error_info=None,
        level=level,
        user_message=text or "",
        run_id=run_id,
        timestamp=time.time(),
        step_key=made.step_key,
        job_name=made.job_name,
        dagster_event=made,
    )


def _writer(instance: dg.DagsterInstance) -> Callable[[Sequence[EventLogEntry]], bool]:
    """Function that stores entries. Whatever it needs of this Dagster is looked up before it is called."""
    from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable, SqlEventLogStorageTable
    from dagster_postgres import PostgresEventLogStorage

    storage = instance.event_log_storage
    if not isinstance(storage, PostgresEventLogStorage):
        return lambda entries: _store_each(storage.store_event, entries)
    # Dagster's public methods open a transaction each: a kill between two would leave an event that its asset knows nothing of.
    store_tags, store_asset = storage._store_asset_event_tags, storage._store_asset_event

    def store(entries: Sequence[EventLogEntry]) -> bool:
        if not entries:
            return True
        try:
            with storage.index_transaction() as conn:
                added = storage.prepare_insert_event_batch(entries).returning(SqlEventLogStorageTable.c.id)
                ids = [int(row[0]) for row in conn.execute(added)]
                made, checked = _by_asset(entries, ids)
                for events in made.values():
                    store_tags(conn, [entry for entry, _ in events], [event_id for _, event_id in events])
                    # The asset's row shows the newest event alone.
                    store_asset(conn, *events[-1])
                if checked:
                    _upsert(conn, AssetCheckExecutionsTable, checked)
        except sa.exc.ProgrammingError:  # another schema than this Dagster's: the transaction is undone
            return False
        return True

    return store


def _store_each(store: Callable[[EventLogEntry], None], entries: Sequence[EventLogEntry]) -> bool:
    for entry in entries:
        store(entry)
    return True


def _by_asset(
    entries: Sequence[EventLogEntry], ids: Sequence[int]
) -> tuple[dict[dg.AssetKey, list[tuple[EventLogEntry, int]]], list[dict[str, Any]]]:
    """Materializations with their ids, by asset, and rows of check executions."""
    made: dict[dg.AssetKey, list[tuple[EventLogEntry, int]]] = {}
    checked: dict[tuple[Any, ...], dict[str, Any]] = {}
    targets: dict[tuple[str, str | None], int] = {}
    for entry, event_id in zip(entries, ids, strict=True):
        event = entry.get_dagster_event()
        if event.is_step_materialization:
            materialization = event.step_materialization_data.materialization
            made.setdefault(materialization.asset_key, []).append((entry, event_id))
            targets[materialization.asset_key.to_string(), materialization.partition] = event_id
    for entry, event_id in zip(entries, ids, strict=True):
        event = entry.get_dagster_event()
        if not event.is_step_materialization:
            row = _execution(entry, event.asset_check_evaluation_data, event_id, targets)
            # A check evaluated twice in one run is one execution, with the later result.
            checked[tuple(row[name] for name in _EXECUTION)] = row
    return made, list(checked.values())


def _execution(
    entry: EventLogEntry, evaluation: dg.AssetCheckEvaluation, event_id: int, targets: Mapping[tuple[str, str | None], int]
) -> dict[str, Any]:
    """Row of Dagster's table of check executions, from which its pages show results.

    A check of a materialization that is stored with it is shown as current on its partition.
    """
    from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus as Status

    told, asset_key = evaluation.target_materialization_data, evaluation.asset_key.to_string()
    target = targets.get((asset_key, evaluation.partition)) if told is None else told.storage_id
    return {
        "asset_key": asset_key,
        "check_name": evaluation.check_name,
        "run_id": entry.run_id,
        "partition": evaluation.partition,
        "execution_status": (Status.SUCCEEDED if evaluation.passed else Status.FAILED).value,
        "evaluation_event": dg.serialize_value(entry),
        "evaluation_event_timestamp": datetime.fromtimestamp(entry.timestamp, UTC).replace(tzinfo=None),
        "evaluation_event_storage_id": event_id,
        "materialization_event_storage_id": target,
    }


def _upsert(conn: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add check executions, or replace those of the same run: a run plans its checks before it evaluates them."""
    added = insert(table).values(list(rows))
    news = {name: added.excluded[name] for name in rows[0] if name not in _EXECUTION}
    conn.execute(added.on_conflict_do_update(index_elements=list(_EXECUTION), set_=news))
