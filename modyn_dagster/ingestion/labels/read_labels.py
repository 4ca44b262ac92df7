"""Reader of the files of a label batch: ids, values and times, checked row by row as those of samples are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastpath.array_types import Int64Array, TimeArray
from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.labels.label_batches import LabelBatchRow
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.batches.known_labels import row_digests
from modyn_dagster.ingestion.batches.members import members_of
from modyn_dagster.ingestion.batches.piece import Piece, concatenate
from modyn_dagster.ingestion.batches.placed_ids import PlacedIds
from modyn_dagster.ingestion.batches.read_batch import BatchReader
from modyn_dagster.ingestion.formats.ids import shown_id
from modyn_dagster.ingestion.formats.labels import ClassLabels
from modyn_dagster.ingestion.sources.source import Source
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.formats import CsvFormat, JsonlFormat


@dataclass(frozen=True)
class LabelContent:
    """Rows of a label batch, in the order of files and rows.

    Attributes:
        places: ids, files and rows.
        values: classes (numbers, or names as an Arrow array), or targets ``float64[n]``.
        known_at: ``datetime64[us][n]``.
        checksums: of the files that were read, by path.
    """

    places: PlacedIds
    values: ClassLabels | npt.NDArray[np.float64]
    known_at: TimeArray
    checksums: Mapping[str, str]

    def __len__(self) -> int:
        return len(self.known_at)

    def digests(self) -> npt.NDArray[np.uint64]:
        """Digest of each row, ``uint64[n]``: of its id, its value and its time, wherever the row stands."""
        return row_digests(self.places.ids, self.values, self.known_at)


def read_labels(source: Source, spec: DatasetSpec, dataset: DatasetRow, batch: LabelBatchRow, now: np.datetime64) -> LabelContent:
    """Read the files of a label batch.

    Args:
        source: of the label files.
        spec: of the dataset.
        dataset: its row.
        batch: an open label batch.
        now: time, UTC: no label is known later.

    Raises:
        DataError: the first bad row: a missing, unknown or impossible value, a missing id, a time in the future.
    """
    rows = _typed_rows(spec, dataset)
    nothing_fixed = DatasetRow(dataset.id, dataset.name, dataset.spec, None, (), 0)
    read = BatchReader(source, rows).read(nothing_fixed, members_of(source, rows, batch.source))
    for piece in read.pieces:
        _require_past(piece, rows, now)
    pieces = read.pieces
    paths = [path for piece in pieces for path in piece.paths]
    path_of = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])
    row_of: Int64Array = np.concatenate([piece.rows for piece in pieces])
    labels = concatenate([piece.labels for piece in pieces])
    values = labels if labels is not None else concatenate([piece.targets for piece in pieces])
    return LabelContent(
        PlacedIds(concatenate([piece.ids for piece in pieces]), paths, path_of, row_of),
        values,
        concatenate([piece.times for piece in pieces]),
        {path: version.checksum for path, version in read.files.items()},
    )


def newest_time(source: Source, spec: DatasetSpec, dataset: DatasetRow, paths: Sequence[str]) -> np.datetime64:
    """Latest time at which a label of some announced files was known. Raises ``DataError`` for files that cannot be read."""
    rows = _typed_rows(spec, dataset)
    nothing_fixed = DatasetRow(dataset.id, dataset.name, dataset.spec, None, (), 0)
    pieces = BatchReader(source, rows).read(nothing_fixed, members_of(source, rows, {"paths": list(paths)})).pieces
    newest: np.datetime64 = max(piece.times.max() for piece in pieces)
    return newest


def _typed_rows(spec: DatasetSpec, dataset: DatasetRow) -> DatasetSpec:
    """The label files as a dataset, with the dtypes of ids and classes that samples have: ``007`` is 7 in both, or in none."""
    rows = spec.label_rows()
    if not isinstance(rows.format, (CsvFormat, JsonlFormat)):
        return rows
    pinned = dict(spec.format.columns) if isinstance(spec.format, (CsvFormat, JsonlFormat)) else {}
    known = {column.name: column.dtype for column in dataset.columns or ()}
    dtypes: dict[str, str] = {}
    for own, theirs in zip(rows.id_columns, spec.id_columns or [""]):
        dtype = known.get(theirs) or pinned.get(theirs) or ("string" if not spec.id_columns else None)
        if dtype is not None:
            dtypes[own] = dtype if dtype in ("int64", "string") else "int64" if np.dtype(dtype).kind in "iu" else "string"
    label = rows.label.from_.column if rows.label is not None and rows.label.from_.source == "column" else ""
    if dataset.class_names and spec.label is not None and spec.label.kind == "class":
        dtypes[label] = "string"
    format = rows.format.model_copy(update={"columns": {**dtypes, **rows.format.columns}})
    return rows.model_copy(update={"format": format})


def _require_past(piece: Piece, rows: DatasetSpec, now: np.datetime64) -> None:
    late = piece.times > now
    if late.any():
        row = int(np.argmax(late))
        id = shown_id(piece.ids[row].as_py()) if piece.ids is not None else ""
        column = rows.time.column if rows.time.source == "column" else None
        problem = f"the label of {id} is known at {piece.times[row]}, which is in the future; it is {now} now (UTC)"
        raise DataError(piece.paths[0], problem, row=row + 1, column=column)
