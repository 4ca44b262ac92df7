"""Registration of label batches: new ones at every tick of a sensor, and failed ones whose files have changed since."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.database.failures import FAILED_STATES
from modyn_dagster.catalog.labels.label_batches import LabelBatchRow, get_label_batch, list_label_batches
from modyn_dagster.catalog.registration import ensure_dataset, known_label_paths, register_labels, register_labels_again
from modyn_dagster.errors import UnknownName
from modyn_dagster.ingestion.batches.members import involved_paths
from modyn_dagster.ingestion.discovery import announce, discover_ready, find_units
from modyn_dagster.ingestion.ingest import states_of
from modyn_dagster.ingestion.sources.source import Source, open_source
from modyn_dagster.spec.dataset import DatasetSpec


@dataclass(frozen=True, slots=True)
class RegisteredLabels:
    """Result of one look at the label files of a dataset.

    Attributes:
        registered: new label batches, then failed ones registered again; all are open, and arrive together.
        waiting: paths that may still be written.
        state: JSON, for the next look.
    """

    registered: list[LabelBatchRow]
    waiting: list[str]
    state: Mapping[str, Any]


def register_ready_labels(
    engine: sa.Engine, spec: DatasetSpec, root: str, state: Mapping[str, Any] | None = None, now: float | None = None
) -> RegisteredLabels:
    """Register every label batch that is ready, as ``register_ready_batches`` does for samples.

    Args:
        engine: of the ``modyn`` database.
        spec: of the dataset.
        root: folder or URL of the label files.
        state: of the previous look; None or empty for the first.
        now: seconds since 1970; None: read the clock.
    """
    previous = state or {}
    source, rows = open_source(root, spec.storage_options), spec.label_rows()
    with transaction(engine) as conn:
        dataset = ensure_dataset(conn, spec)
        known = known_label_paths(conn, dataset.id)
        changed = _changed_failures(conn, source, rows, dataset.id)
    moment = time.time() if now is None else now
    discovery = discover_ready(source, rows, known=known, file_states=previous.get("new"), now=moment)
    # A repair counts once two looks saw the same change: before, it may still be written.
    before = previous.get("failed", {})
    settled = {key for key, (_, states) in changed.items() if before.get(key) == states}
    with transaction(engine) as conn:
        registered = register_labels(conn, dataset.id, discovery.announcements)
        repaired = [batch for key, (batch, _) in changed.items() if key in settled]
        again = _register_again(conn, repaired, registered[0].arrival if registered else None)
    unsettled = {key: found for key, found in changed.items() if key not in settled}
    return RegisteredLabels(
        [*registered, *again],
        [*discovery.waiting, *(batch.source["paths"][0] for batch, _ in unsettled.values())],
        {"new": discovery.file_states, "failed": {key: states for key, (_, states) in unsettled.items()}},
    )


def register_all_labels(engine: sa.Engine, spec: DatasetSpec, root: str) -> list[LabelBatchRow]:
    """Register all label files that no label batch has; they arrive together, after everything registered before.

    Returns all open label batches.
    """
    source, rows = open_source(root, spec.storage_options), spec.label_rows()
    with transaction(engine) as conn:
        dataset = ensure_dataset(conn, spec)
        register_labels(conn, dataset.id, [announce(rows, unit) for unit in find_units(source, rows)])
        return list_label_batches(conn, dataset.id, "open")


def retry_labels(engine: sa.Engine, spec: DatasetSpec, root: str, partition_key: str | None = None) -> list[LabelBatchRow]:
    """Register failed label batches again, under keys ``<key>~2``; they arrive together, after everything registered.

    Args:
        engine: of the ``modyn`` database.
        spec: of the dataset.
        root: folder or URL of the label files.
        partition_key: of one label batch, whether or not its files changed; None: all whose files changed.

    Raises:
        UnknownName: no failed label batch has this key.
    """
    source = open_source(root, spec.storage_options)
    with transaction(engine) as conn:
        dataset = ensure_dataset(conn, spec)
        if partition_key is not None:
            chosen = [get_label_batch(conn, dataset.id, partition_key)]
        else:
            chosen = [batch for batch, _ in _changed_failures(conn, source, spec.label_rows(), dataset.id).values()]
        again = _register_again(conn, chosen)
        if partition_key is not None and not again:
            waiting = [batch.partition_key for batch in _unrepaired(conn, dataset.id)]
            raise UnknownName("failed label batch", partition_key, waiting)
    return again


def _register_again(conn: sa.Connection, failed: Sequence[LabelBatchRow], arrival: int | None = None) -> list[LabelBatchRow]:
    """Deliver failed label batches again, with one arrival: the given or the next one. Those that were before are left out."""
    registered: list[LabelBatchRow] = []
    for batch in failed:
        again = register_labels_again(conn, batch, arrival)
        if again is not None:
            registered, arrival = [*registered, again], again.arrival
    return registered


def _changed_failures(
    conn: sa.Connection, source: Source, rows: DatasetSpec, dataset_id: int
) -> dict[str, tuple[LabelBatchRow, dict[str, Any]]]:
    """Failed label batches whose files have changed since, with the present states of these, by partition key."""
    changed = {}
    for batch in _unrepaired(conn, dataset_id):
        states: dict[str, Any] = states_of(source, involved_paths(source, rows, batch.source["paths"]))
        if states != batch.source[FAILED_STATES]:
            changed[batch.partition_key] = (batch, states)
    return changed


def _unrepaired(conn: sa.Connection, dataset_id: int) -> list[LabelBatchRow]:
    return [batch for batch in list_label_batches(conn, dataset_id, "failed") if batch.repaired_by is None]
