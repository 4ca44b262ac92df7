"""What a sensor does at every tick: register what is new, and what failed and has changed since."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from modyn_dagster.catalog.announcements import known_paths, register, register_again
from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.datasets import ensure_dataset
from modyn_dagster.catalog.engine import transaction
from modyn_dagster.ingestion.discovery import discover_ready
from modyn_dagster.ingestion.repair import ChangedFailure, changed_failures
from modyn_dagster.ingestion.source import open_source
from modyn_dagster.spec.dataset import DatasetSpec


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at a dataset did.

    Attributes:
        registered: new batches, then failed ones delivered again, in ordinal order; all open.
        waiting: paths that may still be written.
        state: JSON, to be handed to the next look.
    """

    registered: list[BatchRow]
    waiting: list[str]
    state: Mapping[str, Any]


def look_for_batches(
    engine: sa.Engine, spec: DatasetSpec, root: str, state: Mapping[str, Any] | None = None, now: float | None = None
) -> Look:
    """Register every batch that is ready.

    Args:
        engine: of the ``modyn`` database.
        spec: of the dataset.
        root: its files.
        state: of the look before; None or empty for the first.
        now: seconds since 1970; None for the clock.
    """
    before = state or {}
    source = open_source(root, spec.storage_options)
    moment = time.time() if now is None else now
    with transaction(engine) as conn:
        dataset = ensure_dataset(conn, spec)
        known = known_paths(conn, dataset.id)
        changed = changed_failures(conn, source, spec, dataset.id)
    found = discover_ready(source, spec, known=known, looks=before.get("new"), now=moment)
    # A repair is taken up when two looks saw the same change: it may still be written.
    failed_before = before.get("failed", {})
    repaired = [failure for failure in changed if failed_before.get(failure.batch.partition_key) == failure.states]
    with transaction(engine) as conn:
        registered = register(conn, dataset.id, found.announcements)
        again = [register_again(conn, failure.batch) for failure in repaired]
    unsettled = [failure for failure in changed if failure not in repaired]
    return Look(
        [*registered, *(batch for batch in again if batch is not None)],
        [*found.waiting, *(failure.batch.source["paths"][0] for failure in unsettled)],
        {"new": found.looks, "failed": _states(unsettled)},
    )


def _states(failures: list[ChangedFailure]) -> dict[str, Any]:
    return {failure.batch.partition_key: failure.states for failure in failures}
