"""Labels that samples have in a column of their own, where others arrive later: known at once, from the time of the sample on."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from fastpath.array_types import Int64Array
from fastpath.format.labels.label_file import LabelRows
from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.samples import SampleRows
from modyn_dagster.data.label_files import arrive_later, is_labelled
from modyn_dagster.ingestion.batches.assemble import Assembled
from modyn_dagster.ingestion.batches.batch_files import BatchContent
from modyn_dagster.ingestion.batches.known_labels import index_labels, record_labels, require_one_form, row_digests
from modyn_dagster.ingestion.formats.labels import ClassLabels
from modyn_dagster.keys import keys_of
from modyn_dagster.spec.dataset import DatasetSpec


@dataclass(frozen=True)
class OwnLabels:
    """Labels in the rows of a batch of n samples, of which k have one.

    Attributes:
        rows: positions of the samples that have a label, ``int64[k]``, ascending.
        digests: of their labels, ``uint64[k]``.
    """

    rows: Int64Array
    digests: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, spec: DatasetSpec, ordinal: int, assembled: Assembled) -> "OwnLabels":
        """Find the labels of the batch with an ordinal; none where labels come with their samples, and the index has them."""
        values = assembled.labels if assembled.labels is not None else assembled.targets
        if values is None or not arrive_later(spec):
            return cls(np.empty(0, np.int64), np.empty(0, np.uint64))
        rows = np.flatnonzero(_present(values))
        chosen = values[rows] if isinstance(values, np.ndarray) else values.take(pa.array(rows))
        ids = keys_of(ordinal, rows) if assembled.ids is None else assembled.ids.ids.take(pa.array(rows))
        return cls(rows, row_digests(ids, chosen, assembled.times[rows]))

    def require_one_form(self, conn: sa.Connection, dataset: DatasetRow, content: BatchContent) -> None:
        """Raise ``DataError`` for class names where other labels of the locked dataset are numbers, or the other way round."""
        if len(self.rows) and content.assembled.labels is not None:
            require_one_form(conn, dataset, content.assembled.labels, content.paths[0])

    def record(self, conn: sa.Connection, home: Path, dataset: DatasetRow, batch: BatchRow, columns: SampleRows) -> None:
        """Record the labels in the transaction that ingests their batch, with the dataset locked.

        They are known from the arrival of the batch on; each has the time of its sample as the time at which it was known.

        Args:
            conn: of the transaction.
            home: folder of the files of state.
            dataset: its row.
            batch: of the samples.
            columns: of all its samples, with class numbers or targets.
        """
        if len(self.rows) == 0:
            return
        arrivals = np.full(len(self.rows), batch.arrival or 0)
        record_labels(conn, home, dataset, f"own_{batch.ordinal}", self.of_samples(columns), arrivals)

    def of_samples(self, columns: SampleRows) -> LabelRows:
        """Rows of the label file, from the columns of all samples of the batch, with class numbers or targets."""
        values = columns.labels if columns.labels is not None else columns.targets
        chosen = np.empty(0, np.int64) if values is None else values[self.rows]
        return LabelRows(columns.keys[self.rows], chosen, columns.times[self.rows], self.digests)


def own_label_rows(spec: DatasetSpec, dataset: DatasetRow, ordinal: int, assembled: Assembled) -> LabelRows:
    """Labels in the rows of the batch with an ordinal, as ``OwnLabels.record`` writes them.

    Args:
        spec: of the dataset.
        dataset: its row, which has the names of their classes.
        ordinal: of the batch.
        assembled: its samples, read again.
    """
    keys, classes = keys_of(ordinal, np.arange(len(assembled.times))), index_labels(assembled.labels, dataset.class_names)
    columns = SampleRows(keys, assembled.times, classes, assembled.targets, None)
    return OwnLabels.of(spec, ordinal, assembled).of_samples(columns)


def _present(values: ClassLabels | npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    if isinstance(values, np.ndarray):
        return is_labelled(values)
    present: npt.NDArray[np.bool_] = pc.fill_null(pc.greater(pc.binary_length(values), 0), False).to_numpy(zero_copy_only=False)
    return present
