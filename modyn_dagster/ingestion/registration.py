"""Registration of batches: new ones at every tick of a sensor, and failed ones whose files have changed since."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from modyn_dagster.catalog.batches import BatchRow, get_batch, list_batches
from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.database.failures import FAILED_STATES
from modyn_dagster.catalog.registration import ensure_dataset, known_paths, register, register_again
from modyn_dagster.errors import UnknownName
from modyn_dagster.ingestion.batches.members import involved_paths
from modyn_dagster.ingestion.discovery import discover_ready
from modyn_dagster.ingestion.ingest import states_of
from modyn_dagster.ingestion.sources.source import Source, open_source
from modyn_dagster.spec.dataset import DatasetSpec


@dataclass(frozen=True, slots=True)
class ChangedFailure:
    """A failed batch whose files have changed since it failed; ``states`` are their current states."""

    batch: BatchRow
    states: Mapping[str, Any]


def retry(engine: sa.Engine, spec: DatasetSpec, root: str, partition_key: str | None = None) -> list[BatchRow]:
    """Register failed batches again, in ordinal order. They are open, with new ordinals and keys ``<key>~2``.

    Args:
        engine: of the ``modyn`` database.
        spec: of the dataset.
        root: folder or URL of its files.
        partition_key: of one batch, whether or not its files changed; None: all batches whose files changed.

    Raises:
        UnknownName: no failed batch has this key.
    """
    source = open_source(root, spec.storage_options)
    with transaction(engine) as conn:
        dataset = ensure_dataset(conn, spec)
        if partition_key is not None:
            chosen = [get_batch(conn, dataset.id, partition_key)]
        else:
            chosen = [failure.batch for failure in changed_failures(conn, source, spec, dataset.id)]
        again = [register_again(conn, batch) for batch in chosen]
        if partition_key is not None and again == [None]:
            waiting = [batch.partition_key for batch in unrepaired(conn, dataset.id)]
            raise UnknownName("failed batch", partition_key, waiting)
    return [batch for batch in again if batch is not None]


def changed_failures(conn: sa.Connection, source: Source, spec: DatasetSpec, dataset_id: int) -> list[ChangedFailure]:
    """Failed batches that were not registered again and whose files have changed since they failed."""
    failures = []
    for batch in unrepaired(conn, dataset_id):
        states = states_of(source, involved_paths(source, spec, batch.source["paths"]))
        if states != batch.source[FAILED_STATES]:
            failures.append(ChangedFailure(batch, states))
    return failures


def unrepaired(conn: sa.Connection, dataset_id: int) -> list[BatchRow]:
    """Failed batches that were not registered again."""
    return [batch for batch in list_batches(conn, dataset_id, "failed") if batch.repaired_by is None]


@dataclass(frozen=True, slots=True)
class RegisteredBatches:
    """Result of one look at a dataset.

    Attributes:
        registered: new batches, then failed ones registered again, in ordinal order; all are open.
        waiting: paths that may still be written.
        state: JSON, for the next look.
    """

    registered: list[BatchRow]
    waiting: list[str]
    state: Mapping[str, Any]


def register_ready_batches(
    engine: sa.Engine, spec: DatasetSpec, root: str, state: Mapping[str, Any] | None = None, now: float | None = None
) -> RegisteredBatches:
    """Register every batch that is ready.

    Args:
        engine: of the ``modyn`` database.
        spec: of the dataset.
        root: folder or URL of its files.
        state: of the previous look; None or empty for the first.
        now: seconds since 1970; None: read the clock.
    """
    previous = state or {}
    source = open_source(root, spec.storage_options)
    moment = time.time() if now is None else now
    with transaction(engine) as conn:
        dataset = ensure_dataset(conn, spec)
        known = known_paths(conn, dataset.id)
        changed = changed_failures(conn, source, spec, dataset.id)
    discovery = discover_ready(source, spec, known=known, file_states=previous.get("new"), now=moment)
    # A repair counts once two looks saw the same change: before, it may still be written.
    failed_before = previous.get("failed", {})
    repaired = [failure for failure in changed if failed_before.get(failure.batch.partition_key) == failure.states]
    with transaction(engine) as conn:
        registered = register(conn, dataset.id, discovery.announcements)
        again = [register_again(conn, failure.batch) for failure in repaired]
    unsettled = [failure for failure in changed if failure not in repaired]
    return RegisteredBatches(
        [*registered, *(batch for batch in again if batch is not None)],
        [*discovery.waiting, *(failure.batch.source["paths"][0] for failure in unsettled)],
        {"new": discovery.file_states, "failed": _states(unsettled)},
    )


def _states(failures: list[ChangedFailure]) -> dict[str, Any]:
    return {failure.batch.partition_key: failure.states for failure in failures}
