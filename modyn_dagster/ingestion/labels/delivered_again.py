"""Labels of an ingested label batch, read again from its files: what a damaged label file is made from."""

from collections.abc import Collection
from datetime import UTC, datetime

import numpy as np
import sqlalchemy as sa

from fastpath.format.labels.label_file import LabelRows
from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.labels.label_batches import LabelBatchRow
from modyn_dagster.catalog.labels.sample_ids import keys_of_ids
from modyn_dagster.errors import ChangedBatch
from modyn_dagster.ingestion.labels.commit_labels import ReadyLabels, label_values
from modyn_dagster.ingestion.labels.read_labels import read_labels
from modyn_dagster.ingestion.sources.source import Source
from modyn_dagster.keys import ordinals_of
from modyn_dagster.spec.dataset import DatasetSpec


def read_again(source: Source, spec: DatasetSpec, dataset: DatasetRow, batch: LabelBatchRow) -> ReadyLabels:
    """Read the files of an ingested label batch again.

    Args:
        source: of the label files.
        spec: of the dataset.
        dataset: its row as of now.
        batch: an ingested label batch.

    Raises:
        ChangedBatch: a file has other bytes than those that were ingested.
        DataError: a file is gone, or cannot be read.
    """
    content = read_labels(source, spec, dataset, batch, np.datetime64(datetime.now(UTC).replace(tzinfo=None), "us"))
    recorded = batch.checksums or {}
    for path in sorted({*recorded, *content.checksums}):
        before, now = recorded.get(path, "none"), content.checksums.get(path, "none")
        if before != now:
            raise ChangedBatch(path, before, now)
    return ReadyLabels.of(content)


def delivered_rows(conn: sa.Connection, dataset: DatasetRow, ready: ReadyLabels, ordinals: Collection[int]) -> LabelRows:
    """Labels of a label batch whose samples are in some sample batches, without rows that repeat an earlier one.

    Labels of deleted samples are among them. Those of purged samples are not, as no sample has their ids any more.
    """
    keys, has_sample = keys_of_ids(conn, dataset.id, ready.ids)
    rows = np.flatnonzero(has_sample & ~ready.repeated & np.isin(ordinals_of(keys), list(ordinals)))
    return LabelRows(keys[rows], label_values(dataset, ready.content, rows), ready.content.known_at[rows], ready.digests[rows])
