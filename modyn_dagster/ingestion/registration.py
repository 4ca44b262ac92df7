"""Registration of batches of samples and of labels: new ones at every tick of a sensor, failed ones whose files have changed."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import sqlalchemy as sa

from modyn_dagster.catalog.batches import BatchRow, get_batch, list_batches
from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.database.failures import FAILED_STATES
from modyn_dagster.catalog.labels.label_batches import LabelBatchRow, get_label_batch, list_label_batches
from modyn_dagster.catalog.registration.batches import (
    Announcement,
    known_label_paths,
    known_paths,
    register,
    register_again,
    register_labels,
)
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.errors import UnknownName
from modyn_dagster.ingestion.batches.members import involved_paths
from modyn_dagster.ingestion.discovery import announce, discover_ready, find_units
from modyn_dagster.ingestion.ingest import states_of
from modyn_dagster.ingestion.sources.source import Source, open_source
from modyn_dagster.spec.dataset import DatasetSpec

Row = TypeVar("Row", bound=BatchRow | LabelBatchRow)


@dataclass(frozen=True, slots=True)
class Registered(Generic[Row]):
    """Result of one look at the files of a dataset.

    Attributes:
        registered: new batches, then failed ones registered again, in ordinal order; all are open. Label batches arrive together.
        waiting: paths that may still be written.
        state: JSON, for the next look.
    """

    registered: list[Row]
    waiting: list[str]
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Kind(Generic[Row]):
    """Batches of samples, or of labels.

    Attributes:
        noun: for messages.
        files: spec of their files, from that of the dataset.
        known_paths: paths that were announced before.
        listed: batches in a state.
        get: the batch with a partition key.
        register: registers new ones, and failed ones again.
    """

    noun: str
    files: Callable[[DatasetSpec], DatasetSpec]
    known_paths: Callable[[sa.Connection, int], set[str]]
    listed: Callable[[sa.Connection, int, str | None], list[Row]]
    get: Callable[[sa.Connection, int, str], Row]
    register: Callable[[sa.Connection, int, Sequence[Announcement], Sequence[Row]], list[Row]]


def register_ready_batches(
    engine: sa.Engine, spec: DatasetSpec, root: str, state: Mapping[str, Any] | None = None, now: float | None = None
) -> Registered[BatchRow]:
    """Register every batch of samples that is ready, and failed ones whose files have changed.

    Args:
        engine: of the ``modyn`` database.
        spec: of the dataset.
        root: folder or URL of its files.
        state: of the previous look; None or empty for the first.
        now: seconds since 1970; None: read the clock.
    """
    return _look(_SAMPLES, engine, spec, root, state, now)


def register_ready_labels(
    engine: sa.Engine, spec: DatasetSpec, root: str, state: Mapping[str, Any] | None = None, now: float | None = None
) -> Registered[LabelBatchRow]:
    """Register every label batch that is ready, as ``register_ready_batches`` does for samples; ``root`` is that of labels."""
    return _look(_LABELS, engine, spec, root, state, now)


def register_all_labels(engine: sa.Engine, spec: DatasetSpec, root: str) -> list[LabelBatchRow]:
    """Register all label files that no label batch has; they arrive together, after everything registered before.

    Returns all open label batches.
    """
    source, rows = open_source(root, spec.storage_options), spec.label_rows()
    with transaction(engine) as conn:
        dataset = ensure_dataset(conn, spec)
        register_labels(conn, dataset.id, [announce(rows, unit) for unit in find_units(source, rows)])
        return list_label_batches(conn, dataset.id, "open")


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
    return _retry(_SAMPLES, engine, spec, root, partition_key)


def retry_labels(engine: sa.Engine, spec: DatasetSpec, root: str, partition_key: str | None = None) -> list[LabelBatchRow]:
    """Register failed label batches again, as ``retry`` does; they arrive together, after everything registered."""
    return _retry(_LABELS, engine, spec, root, partition_key)


def _look(
    kind: _Kind[Row], engine: sa.Engine, spec: DatasetSpec, root: str, state: Mapping[str, Any] | None, now: float | None
) -> Registered[Row]:
    previous = state or {}
    source, files = open_source(root, spec.storage_options), kind.files(spec)
    moment = time.time() if now is None else now
    with transaction(engine) as conn:
        dataset = ensure_dataset(conn, spec)
        known = kind.known_paths(conn, dataset.id)
        changed = _changed_failures(kind, conn, source, files, dataset.id)
    discovery = discover_ready(source, files, known=known, file_states=previous.get("new"), now=moment)
    # A repair counts once two looks saw the same change: before, it may still be written.
    before = previous.get("failed", {})
    settled = [failed for failed, states in changed if before.get(failed.partition_key) == states]
    unsettled = [(failed, states) for failed, states in changed if failed not in settled]
    with transaction(engine) as conn:
        registered = kind.register(conn, dataset.id, discovery.announcements, settled)
    return Registered(
        registered,
        [*discovery.waiting, *(failed.source["paths"][0] for failed, _ in unsettled)],
        {"new": discovery.file_states, "failed": {failed.partition_key: states for failed, states in unsettled}},
    )


def _retry(kind: _Kind[Row], engine: sa.Engine, spec: DatasetSpec, root: str, partition_key: str | None) -> list[Row]:
    source = open_source(root, spec.storage_options)
    with transaction(engine) as conn:
        dataset = ensure_dataset(conn, spec)
        if partition_key is not None:
            chosen = [kind.get(conn, dataset.id, partition_key)]
        else:
            chosen = [failed for failed, _ in _changed_failures(kind, conn, source, kind.files(spec), dataset.id)]
        again = kind.register(conn, dataset.id, [], chosen)
        if partition_key is not None and not again:
            waiting = [batch.partition_key for batch in _unrepaired(kind, conn, dataset.id)]
            raise UnknownName(f"failed {kind.noun}", partition_key, waiting)
    return again


def _changed_failures(
    kind: _Kind[Row], conn: sa.Connection, source: Source, files: DatasetSpec, dataset_id: int
) -> list[tuple[Row, Mapping[str, Any]]]:
    """Failed batches that were not registered again and whose files have changed since, with the present states of these."""
    changed: list[tuple[Row, Mapping[str, Any]]] = []
    for failed in _unrepaired(kind, conn, dataset_id):
        states = states_of(source, involved_paths(source, files, failed.source["paths"]))
        if states != failed.source[FAILED_STATES]:
            changed.append((failed, states))
    return changed


def _unrepaired(kind: _Kind[Row], conn: sa.Connection, dataset_id: int) -> list[Row]:
    return [batch for batch in kind.listed(conn, dataset_id, "failed") if batch.repaired_by is None]


def _register_samples(
    conn: sa.Connection, dataset_id: int, announcements: Sequence[Announcement], failed: Sequence[BatchRow]
) -> list[BatchRow]:
    again = (register_again(conn, each) for each in failed)
    return [*register(conn, dataset_id, announcements), *(each for each in again if each is not None)]


_SAMPLES: Final = _Kind("batch", lambda spec: spec, known_paths, list_batches, get_batch, _register_samples)
_LABELS: Final = _Kind(
    "label batch", DatasetSpec.label_rows, known_label_paths, list_label_batches, get_label_batch, register_labels
)
