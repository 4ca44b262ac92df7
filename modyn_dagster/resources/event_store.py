"""Materializations of an op in bulk: one statement per asset, where yielding them costs several round trips each.

Dagster writes events in bulk only for outputs of one asset, so this module builds the entries itself. It is the only one that
uses ``dagster._core``; where that has changed, the caller yields the events instead.
"""

import logging
import os
import time
from collections.abc import Sequence
from typing import Final

import dagster as dg

#: A statement of ours that takes longer, in milliseconds, waits for a lock that nobody releases.
_STATEMENT_TIMEOUT: Final = 600_000


def keep_connections(instance: dg.DagsterInstance) -> None:
    """Keep the connections of an instance's storage open, as Dagster's web server does: a new one costs more than a statement."""
    instance.optimize_for_webserver(statement_timeout=_STATEMENT_TIMEOUT, pool_recycle=3_600, max_overflow=20)


def store_in_bulk(context: dg.AssetExecutionContext, materializations: Sequence[dg.AssetMaterialization]) -> bool:
    """Store materializations as if the op had yielded them, asset by asset.

    Args:
        context: of the op.
        materializations: of any assets; those of one asset keep their order.

    Returns:
        False, with nothing stored, if this version of Dagster has no such entries.
    """
    try:
        from dagster._core.events import DagsterEvent, DagsterEventType, StepMaterializationData
        from dagster._core.events.log import EventLogEntry

        step = context.op_execution_context.get_step_execution_context()
        by_asset: dict[dg.AssetKey, list[EventLogEntry]] = {}
        for materialization in materializations:
            text = materialization.description or f"Materialized value {materialization.label}."
            event = DagsterEvent(
                event_type_value=DagsterEventType.ASSET_MATERIALIZATION.value,
                job_name=step.job_name,
                step_handle=step.step.handle,
                node_handle=step.step.node_handle,
                step_kind_value=step.step.kind.value,
                logging_tags=step.event_tags,
                event_specific_data=StepMaterializationData(materialization),
                message=text,
                pid=os.getpid(),
            )
            entry = EventLogEntry(  # type: ignore[no-untyped-call]  # Dagster builds the class at run time
                error_info=None,
                level=logging.DEBUG,
                user_message=text,
                run_id=context.run.run_id,
                timestamp=time.time(),
                step_key=event.step_key,
                job_name=event.job_name,
                dagster_event=event,
            )
            by_asset.setdefault(materialization.asset_key, []).append(entry)
        store = context.instance.event_log_storage.store_event_batch
    except (ImportError, AttributeError, TypeError):
        return False
    for entries in by_asset.values():
        store(entries)
    return True
