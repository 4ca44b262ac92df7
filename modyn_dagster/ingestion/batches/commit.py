"""Commit of batches in one transaction: indexes and shards on disk, samples in Postgres, the batches closed; or nothing."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from fastpath.array_types import Int64Array
from modyn_dagster.catalog.batches import BatchFacts, BatchRow, FileFacts, batches_at, lock_batch, mark_ingested, owners_of
from modyn_dagster.catalog.database.mapping import as_timestamp
from modyn_dagster.catalog.datasets import DatasetRow, append_class_names, lock_dataset, set_columns
from modyn_dagster.catalog.labels.sample_ids import add_sample_ids
from modyn_dagster.catalog.layouts import append_layout, layout_number
from modyn_dagster.catalog.samples import SampleRows, copy_samples, joined_rows
from modyn_dagster.data.batch_index import index_path
from modyn_dagster.data.split import TRAIN, side_of
from modyn_dagster.errors import DataError, DuplicateFile
from modyn_dagster.ingestion.batches.batch_files import BatchContent, StagedShard, content_checksum, publish_files, sweep_remains
from modyn_dagster.ingestion.batches.known_labels import index_labels, resolve_waiting
from modyn_dagster.ingestion.batches.own_labels import OwnLabels
from modyn_dagster.ingestion.formats.attributes import as_bytes
from modyn_dagster.ingestion.formats.labels import ClassLabels
from modyn_dagster.ingestion.sources.files import FileVersion
from modyn_dagster.keys import KeyArray, key_of, keys_of, ordinal_of
from modyn_dagster.spec.dataset import DatasetSpec

#: Files that are written at a time: a disk makes several durable in hardly more time than one.
_WRITERS: Final = 8


@dataclass(frozen=True)
class ReadyBatch:
    """An open batch whose files are read."""

    batch: BatchRow
    content: BatchContent
    shard: StagedShard | None = None


def commit_batches(conn: sa.Connection, home: Path, spec: DatasetSpec, dataset: DatasetRow, ready: Sequence[ReadyBatch]) -> bool:
    """Ingest open batches, in ordinal order, in the transaction of ``conn``.

    Returns False, with nothing done, when another process has closed a batch or resolved the dataset's columns since the
    batches were read: read them again. Raises ``DuplicateFile`` when another batch has ingested one of the files.
    """
    own = [OwnLabels.of(spec, item.batch.ordinal, item.content.assembled) for item in ready]
    # Before any batch is: whoever needs both locks takes them in this order.
    if any(_needs_lock(spec, dataset, item.content) for item in ready):
        current = lock_dataset(conn, dataset.id)
        if current.columns != dataset.columns:
            return False
        dataset = current
    for item, labelled in zip(ready, own, strict=True):
        if lock_batch(conn, item.batch.id).state != "open":
            return False
        for path, owner in owners_of(conn, item.batch, item.content.paths).items():
            raise DuplicateFile(path, owner)
        _record_ids(conn, dataset, item)
        labelled.require_one_form(conn, dataset, item.content)
    if dataset.columns is None:
        set_columns(conn, dataset.id, ready[0].content.columns)
        dataset = replace(dataset, columns=tuple(ready[0].content.columns))
    sweep_remains(home, spec.name, {item.batch.ordinal: item.shard for item in ready})
    rows, written = [], []
    # Files are written in threads: that is mostly hashing, while the database is mostly waiting for the server.
    with ThreadPoolExecutor(min(len(ready), _WRITERS), thread_name_prefix="index") as pool:
        for item in ready:
            assembled = item.content.assembled
            dataset = replace(dataset, class_names=_class_names(conn, dataset, assembled.labels, item.content.paths[0]))
            if layout_number(dataset, item.content.layout) is None:
                dataset = append_layout(conn, dataset, item.content.layout)
            labels = index_labels(assembled.labels, dataset.class_names)
            first = key_of(item.batch.ordinal, 0)
            keys = np.arange(first, first + len(assembled.times), dtype=np.uint64)
            attributes = None if assembled.attributes is None else as_bytes(assembled.attributes)
            rows.append(SampleRows(keys, assembled.times, labels, assembled.targets, attributes))
            written.append(pool.submit(_write_and_count, home, spec, item, labels, dataset, keys))
        copy_samples(conn, dataset.id, joined_rows(rows))
        facts = [future.result() for future in written]
    for item, labelled, columns in zip(ready, own, rows, strict=True):
        labelled.record(conn, home, dataset, item.batch, columns)
        if item.content.assembled.ids is not None:
            resolve_waiting(conn, home, dataset, item.batch, item.content.assembled.ids)
    for item, fact in zip(ready, facts, strict=True):
        mark_ingested(conn, item.batch, fact, _file_facts(item.content.files, set(item.content.assembled.paths)))
    return True


def _record_ids(conn: sa.Connection, dataset: DatasetRow, item: ReadyBatch) -> None:
    """Record the ids of a batch. Raises ``DataError`` naming both samples with one id; nothing is published by then."""
    placed = item.content.assembled.ids
    if placed is None:
        return
    placed.require_unique()
    keys = keys_of(item.batch.ordinal, np.arange(len(placed)))
    taken = add_sample_ids(conn, dataset.id, placed.ids.to_pylist(), keys)
    if taken is not None:
        sample, key = taken
        [other] = batches_at(conn, dataset.id, [ordinal_of(key)])
        placed.refuse(sample, f"the sample with key {key}, of batch {other.partition_key}, has it")


def _needs_lock(spec: DatasetSpec, dataset: DatasetRow, content: BatchContent) -> bool:
    """Test that the commit adds columns, layouts or classes to the dataset, or compares its files with those of all batches."""
    if dataset.columns is None or layout_number(dataset, content.layout) is None:
        return True
    if spec.label is not None and spec.label.arrives == "later":
        # Labels may wait for these samples: a label batch is ingested before or after, never meanwhile.
        return True
    if content.assembled.ids is not None:
        return True
    labels, known = content.assembled.labels, set(dataset.class_names)
    is_new = isinstance(labels, pa.Array) and any(name not in known for name in pc.unique(labels).to_pylist() if name)
    return is_new or spec.batches.kind != "file"


def _class_names(conn: sa.Connection, dataset: DatasetRow, labels: ClassLabels | None, path: str) -> tuple[str, ...]:
    if not isinstance(labels, pa.Array):
        return dataset.class_names
    distinct: list[str] = pc.unique(labels).to_pylist()  # in order of first appearance
    known = set(dataset.class_names)
    new = [name for name in distinct if name and name not in known]
    for name in new:
        if "\0" in name:
            raise DataError(path, f"the name of the class {name!r} has a null character")
    return append_class_names(conn, dataset, new) if new else dataset.class_names


def _write_and_count(
    home: Path,
    spec: DatasetSpec,
    ready: ReadyBatch,
    labels: Int64Array | None,
    dataset: DatasetRow,
    keys: KeyArray,
) -> BatchFacts:
    ordinal, content = ready.batch.ordinal, ready.content
    checksum = publish_files(home, spec.name, ordinal, content, labels, ready.shard)
    times, train = content.assembled.times, side_of(keys, spec.split) == TRAIN
    return BatchFacts(
        n_samples=len(times),
        n_train=int(np.count_nonzero(train)),
        time_min=as_timestamp(times[0]),
        time_max=as_timestamp(times[-1]),
        train_time_max=as_timestamp(times[train][-1]) if train.any() else None,
        label_counts=_label_counts(labels, dataset.class_names),
        index_path=index_path(spec.name, ordinal),
        index_checksum=checksum,
        content_checksum=content_checksum(content.files),
        layout=layout_number(dataset, content.layout) or 0,
    )


def _label_counts(labels: Int64Array | None, names: Sequence[str]) -> dict[str, int]:
    if labels is None:
        return {}
    # A sample whose label is not known yet has -1.
    labels = labels if labels.min() >= 0 else labels[labels >= 0]
    if len(labels) == 0:
        return {}
    if labels.max() < len(labels):
        totals = np.bincount(labels)
        values = np.flatnonzero(totals)
        counts = totals[values]
    else:
        values, counts = np.unique(labels, return_counts=True)
    return {names[value] if names else str(value): int(n) for value, n in zip(values, counts)}


def _file_facts(files: Mapping[str, FileVersion], in_place: set[str]) -> list[FileFacts]:
    return [
        FileFacts(path, version.state.size, version.state.mtime_ns if path in in_place else None, version.checksum)
        for path, version in files.items()
    ]
