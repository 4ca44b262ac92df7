"""Commit of a label batch in one transaction: known labels in files, others waiting, the batch closed; or nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import sqlalchemy as sa

from fastpath.array_types import Int64Array, TimeArray
from fastpath.format.labels.label_file import LabelArray, LabelRows
from modyn_dagster.catalog.batches import BatchRow, batches_at
from modyn_dagster.catalog.database.mapping import as_timestamp
from modyn_dagster.catalog.datasets import DatasetRow, append_class_names, lock_dataset
from modyn_dagster.catalog.deletions import block_deletions, deleted_keys
from modyn_dagster.catalog.labels.label_batches import (
    LabelBatchFacts,
    LabelBatchRow,
    first_open_label_batch,
    lock_label_batch,
    mark_labels_ingested,
)
from modyn_dagster.catalog.labels.sample_ids import keys_of_ids
from modyn_dagster.catalog.labels.waiting import WaitingLabel, add_waiting
from modyn_dagster.data.batch_index import open_index
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.batches.known_labels import class_indices, record_labels, require_one_form
from modyn_dagster.ingestion.labels.findings import delay_histogram, found, label_counts, repeated_rows, repeats_in_file
from modyn_dagster.ingestion.labels.read_labels import LabelContent
from modyn_dagster.keys import KeyArray, ordinals_of, positions_of
from modyn_dagster.spec.dataset import DatasetSpec


@dataclass(frozen=True)
class ReadyLabels:
    """Content of a label batch, with all that needs no lock.

    Attributes:
        ids: ``content.places.ids`` as texts.
        digests: of the rows, ``uint64[n]``.
        repeated: rows that equal an earlier one, ``bool[n]``.
        twice: other rows whose id an earlier row of their file has, ``bool[n]``.
    """

    content: LabelContent
    ids: Sequence[str]
    digests: npt.NDArray[np.uint64]
    repeated: npt.NDArray[np.bool_]
    twice: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, content: LabelContent) -> "ReadyLabels":
        """Make the content of a label batch ready, row by row."""
        digests = content.digests()
        repeated = repeated_rows(content.places, digests)
        return cls(content, content.places.ids.to_pylist(), digests, repeated, repeats_in_file(content.places) & ~repeated)


def follows_arrivals(spec: DatasetSpec) -> bool:
    """True where labels bring the names of classes: label batches are ingested in the order of arrival, which numbers them."""
    return spec.label is not None and spec.label.kind == "class" and spec.label.classes is None and spec.label.n_classes is None


def commit_labels(
    conn: sa.Connection, home: Path, spec: DatasetSpec, dataset: DatasetRow, batch: LabelBatchRow, ready: ReadyLabels
) -> bool:
    """Ingest an open label batch in the transaction of ``conn``.

    Returns False, with nothing done, when another process has closed it since it was read, or has resolved the dataset's columns
    or named its first classes, by which ids and labels are read; and when an earlier label batch is open that may name classes.

    Raises ``DataError`` for class names where the dataset's classes are numbers, or the other way round.
    """
    content, digests, repeated = ready.content, ready.digests, ready.repeated
    # In this order, as whoever deletes or ingests takes them.
    block_deletions(conn, dataset.id)
    current = lock_dataset(conn, dataset.id)
    if current.columns != dataset.columns or bool(current.class_names) != bool(dataset.class_names):
        return False
    dataset = current
    if lock_label_batch(conn, batch.id).state != "open":
        return False
    first = first_open_label_batch(conn, dataset.id)
    if follows_arrivals(spec) and first is not None and first.id != batch.id:
        return False
    _require_one_form(conn, dataset, content)
    keys, has_sample = keys_of_ids(conn, dataset.id, ready.ids)
    deleted = has_sample & _deleted(conn, dataset, keys, has_sample)
    known, waiting = has_sample & ~deleted & ~repeated, ~has_sample & ~repeated
    samples = _Samples.of(conn, home, dataset, keys[known])
    delays = content.known_at[known] - samples.times
    early = np.zeros(len(content), dtype=bool)
    early[known] = delays < np.timedelta64(0, "us")
    _add_waiting(conn, batch, content, digests, np.flatnonzero(waiting))
    if isinstance(content.values, pa.Array):
        dataset = _name_classes(conn, dataset, ready, np.flatnonzero(known | waiting))
    values = label_values(dataset, content, np.flatnonzero(known))
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
            twice=ready.twice,
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
    """Refuse names of classes in a dataset of numbered ones, numbers in one of names, and names that cannot be kept."""
    path = content.places.paths[0]
    if isinstance(content.values, pa.Array):
        for name in content.values.unique().to_pylist():
            if "\0" in name:
                raise DataError(path, f"the name of the class {name!r} has a null character")
    if isinstance(content.values, pa.Array) or content.values.dtype == np.int64:
        require_one_form(conn, dataset, content.values, path)


def _deleted(
    conn: sa.Connection, dataset: DatasetRow, keys: KeyArray, has_sample: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    if not has_sample.any():
        return has_sample
    return np.isin(keys, deleted_keys(conn, dataset.id, int(keys[has_sample].min()), int(keys[has_sample].max())))


def _name_classes(conn: sa.Connection, dataset: DatasetRow, ready: ReadyLabels, rows: Int64Array) -> DatasetRow:
    """Give names of classes that are new in some rows the next numbers, by time known, then by id; returns the dataset.

    Rows that wait count as well: so no number depends on the time at which samples are ingested.
    """
    numbers = class_indices(ready.content.values.take(pa.array(rows)), dataset.class_names)
    new = rows[numbers < 0]
    if len(new) == 0:
        return dataset
    times, names = ready.content.known_at[new].astype(np.int64).tolist(), ready.content.values.take(pa.array(new)).to_pylist()
    in_order = sorted(zip(times, [ready.ids[row] for row in new.tolist()], names, strict=True))
    return replace(dataset, class_names=append_class_names(conn, dataset, [name for _, _, name in in_order]))


def label_values(dataset: DatasetRow, content: LabelContent, rows: Int64Array) -> LabelArray:
    """Numbers of the classes of some rows (``int64[n]``, by position), or their targets ``float64[n]``."""
    if not isinstance(content.values, pa.Array):
        return content.values[rows]
    return class_indices(content.values.take(pa.array(rows)), dataset.class_names)


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
