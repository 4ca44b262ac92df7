"""Labels whose samples are known, at once or after they waited: classes get their numbers, and label files are written."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from fastpath.array_types import Int64Array, TimeArray
from fastpath.format.labels.label_file import LabelRows
from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.database.mapping import as_datetime64
from modyn_dagster.catalog.datasets import DatasetRow, append_class_names
from modyn_dagster.catalog.labels.label_files import record_label_file
from modyn_dagster.catalog.labels.waiting import WaitingLabel, take_waiting
from modyn_dagster.data.label_files import label_file_path, write_label_file
from modyn_dagster.ingestion.batches.placed_ids import PlacedIds
from modyn_dagster.ingestion.formats.labels import ClassLabels
from modyn_dagster.keys import KeyArray, keys_of
from modyn_dagster.storage import sweep_unfinished

#: Between the parts of a row that its digest is of; no id holds it twice in a row.
_PARTS: Final = b"\x1e"


def row_digests(ids: Sequence[str], values: ClassLabels | npt.NDArray[np.float64], known_at: TimeArray) -> npt.NDArray[np.uint64]:
    """Digests of n labels, ``uint64[n]``: each of its id, its value and its time, wherever the row stands.

    Args:
        ids: of the samples.
        values: classes (numbers, or names as an Arrow array), or targets ``float64[n]``.
        known_at: ``datetime64[us][n]``.
    """
    texts = values if isinstance(values, np.ndarray) else values.to_pylist()
    times = known_at.astype("datetime64[us]").astype(np.int64).tolist()
    rows = zip(ids, map(str, texts), map(str, times), strict=True)
    content = b"".join(blake2b(_PARTS.join(part.encode() for part in row), digest_size=8).digest() for row in rows)
    return np.frombuffer(content, dtype="<u8").astype(np.uint64)


def numbered(conn: sa.Connection, dataset: DatasetRow, names: pa.Array, order: Int64Array) -> tuple[DatasetRow, Int64Array]:
    """Numbers of class names, ``int64[n]``; names that are new get the next ones.

    Args:
        conn: of the transaction that holds the lock of the dataset.
        dataset: its row.
        names: of n labels.
        order: the labels in the order of (time known, sample), in which new names are numbered.

    Returns:
        The dataset with all names, and the numbers.
    """
    found: list[str] = pc.unique(names.take(pa.array(order))).to_pylist()
    known = set(dataset.class_names)
    if new := [name for name in found if name not in known]:
        dataset = replace(dataset, class_names=append_class_names(conn, dataset, new))
    positions = pc.index_in(names, value_set=pa.array(dataset.class_names, pa.string()))
    numbers: Int64Array = positions.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return dataset, numbers


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
    names = {arrival: f"{stem}_{arrival}" for arrival in np.unique(arrivals).tolist()}
    # The lock of the dataset, which the caller holds, makes this the only writer.
    sweep_unfinished(home / label_file_path(dataset.name, name) for name in names.values())
    for arrival, name in names.items():
        chosen = arrivals == arrival
        facts = write_label_file(home, dataset.name, name, LabelRows(*(column[chosen] for column in rows)))
        record_label_file(conn, dataset.id, arrival, facts)


def in_time_order(known_at: TimeArray, keys: KeyArray, arrivals: Sequence[int] | Int64Array = ()) -> Int64Array:
    """Order of labels by arrival if given, then by time known, then by sample."""
    columns = (keys, known_at, np.asarray(arrivals)) if len(arrivals) else (keys, known_at)
    order: Int64Array = np.lexsort(columns)
    return order


def resolve_waiting(conn: sa.Connection, home: Path, dataset: DatasetRow, batch: BatchRow, placed: PlacedIds) -> DatasetRow:
    """Record the labels that waited for the samples of a batch, in the transaction that ingests it, with the dataset locked.

    Returns the dataset, with the names of classes that appear first in these labels.
    """
    ids = placed.ids.to_pylist()
    waited = take_waiting(conn, dataset.id, ids)
    if not waited:
        return dataset
    # In an order of their own, whatever that in which the catalog gives them.
    waited.sort(key=lambda row: (row.arrival, row.known_at, row.sample_id, row.digest))
    position = {id: i for i, id in enumerate(ids)}
    keys = keys_of(batch.ordinal, np.array([position[row.sample_id] for row in waited]))
    known_at = np.array([as_datetime64(row.known_at) for row in waited], dtype="datetime64[us]")
    of_labels = np.array([row.arrival for row in waited], dtype=np.int64)
    values = np.array([_value(row) for row in waited]) if waited[0].name is None else None
    if values is None:
        names = pa.array([row.name for row in waited], pa.string())
        dataset, values = numbered(conn, dataset, names, in_time_order(known_at, keys, of_labels))
    digests = np.array([row.digest for row in waited], dtype=np.int64).view(np.uint64)
    arrivals = np.maximum(of_labels, batch.arrival or 0)
    record_labels(conn, home, dataset, f"samples_{batch.ordinal}", LabelRows(keys, values, known_at, digests), arrivals)
    return dataset


def _value(row: WaitingLabel) -> int | float:
    return row.label if row.label is not None else float(row.target or 0.0)
