"""Labels whose samples are known, at once or after they waited: classes become numbers, and label files are written."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
import xxhash

from fastpath.array_types import Int64Array, TimeArray
from fastpath.format.labels.label_file import LabelArray, LabelRows
from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.database.mapping import as_datetime64
from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.labels.label_files import record_label_file
from modyn_dagster.catalog.labels.waiting import WaitingLabel, has_labels, take_waiting
from modyn_dagster.data.label_files import label_file_path, write_label_file
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.batches.placed_ids import PlacedIds
from modyn_dagster.ingestion.formats.labels import ClassLabels
from modyn_dagster.keys import KeyArray, keys_of
from modyn_dagster.reproducibility.randomness import hash_keys
from modyn_dagster.storage import sweep_unfinished


def row_digests(
    ids: pa.Array | KeyArray, values: ClassLabels | npt.NDArray[np.float64], known_at: TimeArray
) -> npt.NDArray[np.uint64]:
    """Digests of n labels, ``uint64[n]``: each of its id, its value and its time, wherever the row stands.

    Args:
        ids: of the samples, as an Arrow array of text; their keys where the dataset has no ids.
        values: classes (numbers, or names as an Arrow array), or targets ``float64[n]``.
        known_at: ``datetime64[us][n]``.
    """
    digests = hash_keys(_as_numbers(ids), 0)
    for part in (_as_numbers(values), known_at.astype("datetime64[us]").view(np.uint64)):
        digests = hash_keys(digests ^ part, 1)
    return digests


def _as_numbers(values: pa.Array | npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Numbers as their bits, and texts as their hashes: equal numbers mean equal values, but for one pair in 2^64."""
    if isinstance(values, np.ndarray):
        bits: npt.NDArray[np.uint64] = values.view(np.uint64)
        return bits
    texts = values.dictionary_encode()
    content = texts.dictionary.cast(pa.binary()).to_pylist()
    hashes: npt.NDArray[np.uint64] = np.fromiter(map(xxhash.xxh3_64_intdigest, content), np.uint64, len(content))
    chosen: npt.NDArray[np.uint64] = hashes[texts.indices.to_numpy()]
    return chosen


def class_indices(names: pa.Array, class_names: Sequence[str]) -> Int64Array:
    """Class indices ``int64[n]`` of names: their positions in ``class_names``, -1 for a name that is empty or not there."""
    positions = pc.index_in(names, value_set=pa.array(class_names, pa.string()))
    indices: Int64Array = pc.fill_null(positions.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    return indices


def index_labels(labels: ClassLabels | None, class_names: Sequence[str]) -> Int64Array | None:
    """Class indices ``int64[n]`` of samples, as kept in their index: of names by ``class_indices``, integers unchanged."""
    return class_indices(labels, class_names) if isinstance(labels, pa.Array) else labels


def require_one_form(conn: sa.Connection, dataset: DatasetRow, classes: ClassLabels, path: str) -> None:
    """Refuse names of classes in a dataset whose labels are numbers, and numbers in one of names, known or waiting.

    Args:
        conn: of the transaction that holds the lock of the dataset.
        dataset: its row; its labels arrive later.
        classes: new labels.
        path: of the file that they are in.

    Raises:
        DataError: they are of the other form.
    """
    if isinstance(classes, pa.Array):
        if not dataset.class_names and has_labels(conn, dataset.id):
            raise DataError(path, "class labels are text here, and integers in earlier batches; pin `classes`")
    elif dataset.class_names:
        raise DataError(path, "class labels are integers here, and text in earlier batches; pin `classes`")


def record_labels(conn: sa.Connection, home: Path, dataset: DatasetRow, stem: str, rows: LabelRows, arrivals: Int64Array) -> None:
    """Write and record the label files of a batch, one for each arrival; after a kill they are written again.

    Args:
        conn: of the transaction that closes the batch.
        home: folder of the files of state.
        dataset: its row.
        stem: beginning of the names of the files; unique to the batch.
        rows: n labels, in any order.
        arrivals: from which on each label is known, ``int64[n]``: its label batch's, or its sample batch's if later.
    """
    # Usually all are known from one arrival on, and need no sorting.
    distinct = arrivals[:1] if (arrivals == arrivals[:1]).all() else np.unique(arrivals)
    names = {arrival: f"{stem}_{arrival}" for arrival in distinct.tolist()}
    # The lock of the dataset, which the caller holds, makes this the only writer.
    sweep_unfinished(home / label_file_path(dataset.name, name) for name in names.values())
    for arrival, name in names.items():
        facts = write_label_file(home, dataset.name, name, rows if len(names) == 1 else rows.take(arrivals == arrival))
        record_label_file(conn, dataset.id, arrival, facts)


def resolve_waiting(conn: sa.Connection, home: Path, dataset: DatasetRow, batch: BatchRow, placed: PlacedIds) -> None:
    """Record the labels that waited for the samples of a batch, in the transaction that ingests it, with the dataset locked."""
    ids = placed.ids.to_pylist()
    waited = take_waiting(conn, dataset.id, ids)
    if not waited:
        return
    # In an order of their own, whatever that in which the catalog gives them.
    waited.sort(key=lambda row: (row.arrival, row.known_at, row.sample_id, row.digest))
    position = {id: i for i, id in enumerate(ids)}
    keys = keys_of(batch.ordinal, np.array([position[row.sample_id] for row in waited]))
    known_at = np.array([as_datetime64(row.known_at) for row in waited], dtype="datetime64[us]")
    digests = np.array([row.digest for row in waited], dtype=np.int64).view(np.uint64)
    arrivals = np.maximum(np.array([row.arrival for row in waited], dtype=np.int64), batch.arrival or 0)
    rows = LabelRows(keys, _values(dataset, waited), known_at, digests)
    record_labels(conn, home, dataset, f"samples_{batch.ordinal}", rows, arrivals)


def _values(dataset: DatasetRow, waited: Sequence[WaitingLabel]) -> LabelArray:
    """Targets, or class numbers; names have theirs since their label batch."""
    if dataset.spec["label"]["kind"] == "target":
        return np.array([row.target for row in waited], dtype=np.float64)
    number = {name: i for i, name in enumerate(dataset.class_names)}
    return np.array([row.label if row.name is None else number[row.name] for row in waited], dtype=np.int64)
