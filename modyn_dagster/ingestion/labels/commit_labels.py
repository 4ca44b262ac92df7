"""Commit of a label batch in one transaction: known labels in files, others waiting, the batch closed; or nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import sqlalchemy as sa

from fastpath.array_types import Int64Array, TimeArray
from fastpath.format.labels.label_file import LabelRows
from modyn_dagster.catalog.batches import BatchRow, batches_at
from modyn_dagster.catalog.database.mapping import as_timestamp
from modyn_dagster.catalog.datasets import DatasetRow, lock_dataset
from modyn_dagster.catalog.deletions import block_deletions, deleted_keys
from modyn_dagster.catalog.labels.label_batches import (
    LabelBatchFacts,
    LabelBatchRow,
    has_numbered_labels,
    lock_label_batch,
    mark_labels_ingested,
)
from modyn_dagster.catalog.labels.sample_ids import keys_of_ids
from modyn_dagster.catalog.labels.waiting import WaitingLabel, add_waiting
from modyn_dagster.data.batch_index import open_index
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.batches.known_labels import in_time_order, numbered, record_labels
from modyn_dagster.ingestion.labels.findings import delay_histogram, found, label_counts, repeated_rows, repeats_in_file
from modyn_dagster.ingestion.labels.read_labels import LabelContent
from modyn_dagster.keys import KeyArray, ordinals_of, positions_of


def commit_labels(conn: sa.Connection, home: Path, dataset: DatasetRow, batch: LabelBatchRow, content: LabelContent) -> bool:
    """Ingest an open label batch in the transaction of ``conn``.

    Returns False, with nothing done, when another process has closed it since. Raises ``DataError`` for class names where the
    dataset's classes are numbers, or the other way round.
    """
    # In this order, as whoever deletes or ingests takes them.
    block_deletions(conn, dataset.id)
    dataset = lock_dataset(conn, dataset.id)
    if lock_label_batch(conn, batch.id).state != "open":
        return False
    _require_one_form(conn, dataset, content)
    digests = content.digests()
    repeated = repeated_rows(content.places, digests)
    keys, has_sample = keys_of_ids(conn, dataset.id, content.places.ids.to_pylist())
    deleted = has_sample & _deleted(conn, dataset, keys, has_sample)
    known, waiting = has_sample & ~deleted & ~repeated, ~has_sample & ~repeated
    samples = _Samples.of(conn, home, dataset, keys[known])
    delays = content.known_at[known] - samples.times
    early = np.zeros(len(content), dtype=bool)
    early[known] = delays < np.timedelta64(0, "us")
    _add_waiting(conn, batch, content, digests, np.flatnonzero(waiting))
    dataset, values = _values(conn, dataset, content, np.flatnonzero(known), keys)
    arrivals = np.maximum(samples.arrivals, batch.arrival)
    rows = LabelRows(keys[known], values, content.known_at[known], digests[known])
    record_labels(conn, home, dataset, f"labels_{batch.ordinal}", rows, arrivals)
    facts = LabelBatchFacts(
        n_rows=len(content),
        n_known=int(np.count_nonzero(known)),
        n_waiting=int(np.count_nonzero(waiting)),
        known_min=as_timestamp(content.known_at.min()),
        known_max=as_timestamp(content.known_at.max()),
        label_counts=label_counts(values, dataset.class_names),
        delays=delay_histogram(delays),
        findings=found(
            content.places,
            unknown=waiting,
            twice=repeats_in_file(content.places) & ~repeated,
            early=early,
            deleted=deleted & ~repeated,
            repeated=repeated,
        ),
        checksums=content.checksums,
    )
    mark_labels_ingested(conn, batch, facts)
    return True


@dataclass(frozen=True)
class _Samples:
    """Facts about the samples of n labels: their times, and the arrivals of their batches."""

    times: TimeArray
    arrivals: Int64Array

    @classmethod
    def of(cls, conn: sa.Connection, home: Path, dataset: DatasetRow, keys: KeyArray) -> "_Samples":
        ordinals, positions = ordinals_of(keys), positions_of(keys)
        times, arrivals = np.empty(len(keys), dtype="datetime64[us]"), np.zeros(len(keys), dtype=np.int64)
        rows: Mapping[int, BatchRow] = {row.ordinal: row for row in batches_at(conn, dataset.id, np.unique(ordinals).tolist())}
        for ordinal, row in rows.items():
            chosen = ordinals == ordinal
            times[chosen] = open_index(home, row).times[positions[chosen]]
            arrivals[chosen] = row.arrival or 0
        return cls(times, arrivals)


def _require_one_form(conn: sa.Connection, dataset: DatasetRow, content: LabelContent) -> None:
    """Refuse names of classes in a dataset of numbered ones, and numbers in one of names."""
    path = content.places.paths[0]
    if isinstance(content.values, pa.Array):
        for name in content.values.unique().to_pylist():
            if "\0" in name:
                raise DataError(path, f"the name of the class {name!r} has a null character")
        if not dataset.class_names and has_numbered_labels(conn, dataset.id):
            raise DataError(path, "class labels are text here, and integers in earlier label batches; pin `classes`")
    elif content.values.dtype == np.int64 and dataset.class_names:
        raise DataError(path, "class labels are integers here, and text in earlier label batches; pin `classes`")


def _deleted(
    conn: sa.Connection, dataset: DatasetRow, keys: KeyArray, has_sample: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    if not has_sample.any():
        return has_sample
    return np.isin(keys, deleted_keys(conn, dataset.id, int(keys[has_sample].min()), int(keys[has_sample].max())))


def _values(
    conn: sa.Connection, dataset: DatasetRow, content: LabelContent, rows: Int64Array, keys: KeyArray
) -> tuple[DatasetRow, npt.NDArray[Any]]:
    """Numbers of the classes of some rows, or their targets, and the dataset with the names that are new."""
    if not isinstance(content.values, pa.Array):
        return dataset, content.values[rows]
    return numbered(conn, dataset, content.values.take(pa.array(rows)), in_time_order(content.known_at[rows], keys[rows]))


def _add_waiting(
    conn: sa.Connection, batch: LabelBatchRow, content: LabelContent, digests: npt.NDArray[np.uint64], rows: Int64Array
) -> None:
    ids, values = content.places.ids, content.values
    is_name = isinstance(values, pa.Array)
    is_class = is_name or values.dtype == np.int64
    add_waiting(
        conn,
        [
            WaitingLabel(
                dataset_id=batch.dataset_id,
                sample_id=ids[row].as_py(),
                label_batch_id=batch.id,
                arrival=batch.arrival,
                known_at=as_timestamp(content.known_at[row]),
                name=values[row].as_py() if is_name else None,
                label=int(values[row]) if is_class and not is_name else None,
                target=None if is_class else float(values[row]),
                digest=int(digests[row].astype(np.int64)),
            )
            for row in rows.tolist()
        ],
    )
