"""Index, shard and list of deleted samples of a batch, made again from the source files and from Postgres."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from fastpath.format.deletions import write_deleted
from modyn_dagster.catalog.batches import BatchRow, lock_batch
from modyn_dagster.catalog.datasets import DatasetRow, get_dataset
from modyn_dagster.catalog.deletions import deleted_keys
from modyn_dagster.catalog.layouts import layout_columns
from modyn_dagster.data.batch_index import rewrite_number
from modyn_dagster.errors import NotReproducible
from modyn_dagster.ingestion.batches.batch_files import BatchContent
from modyn_dagster.ingestion.batches.read_batch import BatchReader
from modyn_dagster.ingestion.batches.remade_batch import RemadeBatch
from modyn_dagster.ingestion.ingest import read_content
from modyn_dagster.ingestion.sources.source import open_source
from modyn_dagster.keys import MAX_BATCH_SIZE, key_of, positions_of
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.formats import FixedRowsFormat, ParquetFormat
from modyn_dagster.storage import StagedFile

_DOING = "made again"


def remake_deleted_list(platform: Platform, dataset: DatasetRow, batch: BatchRow, path: Path) -> None:
    """Write the list of a batch's deleted samples again from the deletions in Postgres.

    Raises ``NotReproducible`` where these give other bytes.
    """
    with platform.transaction() as conn:
        keys = deleted_keys(conn, dataset.id, key_of(batch.ordinal, 0), key_of(batch.ordinal, MAX_BATCH_SIZE - 1))
    staged = StagedFile(path)
    try:
        with staged.as_hashed_file() as out:
            write_deleted(out, positions_of(keys).astype(np.uint32))
        if out.checksum != batch.deleted_checksum:
            raise NotReproducible(path.name, batch.deleted_checksum, out.checksum, doing=_DOING)
        staged.publish()
    finally:
        staged.discard()


def remake_batch_files(platform: Platform, dataset: DatasetRow, batch: BatchRow) -> None:
    """Read the source files of a batch again and write its shard and index, if these give the recorded index.

    The index names the checksums of the shard and of the files read in place, so an equal index means that all are equal.

    Raises:
        NotReproducible: samples were purged from the batch, or its source files changed.
        DataError: a source file is gone or cannot be read.
        UnknownName: the project has no file of the dataset.
    """
    if rewrite_number(str(batch.index_path)):
        raise NotReproducible("batch", "a batch as it was ingested", "one with purged samples", doing=_DOING)
    dataset, content = content_as_ingested(platform, dataset, batch)
    with RemadeBatch(platform.home, dataset, batch, content) as remade:
        if remade.checksum != batch.index_checksum:
            raise NotReproducible("source files", f"index {batch.index_checksum}", remade.checksum, doing=_DOING)
        with platform.transaction() as conn:
            current = lock_batch(conn, batch.id)
            # A purge writes files of its own, and another repair the same ones.
            if current.index_path == batch.index_path and remade.is_unpublished:
                remade.publish()


def content_as_ingested(platform: Platform, dataset: DatasetRow, batch: BatchRow) -> tuple[DatasetRow, BatchContent]:
    """Read the source files of a batch again, with the columns that its records have; returns the dataset as of now, too.

    Raises ``DataError`` for a source file that is gone or cannot be read, ``UnknownName`` where the project lacks the dataset.
    """
    with platform.transaction() as conn:
        # The given row may be older than the layout of the batch.
        dataset = get_dataset(conn, dataset.name)
    spec, dataset = _as_ingested(platform.dataset(dataset.name), dataset, batch)
    source = open_source(platform.project.root_of(dataset.name), spec.storage_options)
    return dataset, read_content(source, spec, dataset, batch, BatchReader(source, spec))


def _as_ingested(spec: DatasetSpec, dataset: DatasetRow, batch: BatchRow) -> tuple[DatasetSpec, DatasetRow]:
    """Spec and dataset with the columns that the records of a batch have, without those that the dataset got later.

    Rows of text are read in place, and their index is the same with more columns.
    """
    if not isinstance(spec.format, (FixedRowsFormat, ParquetFormat)):
        return spec, dataset
    columns = layout_columns(dataset, batch.layout)
    if isinstance(spec.format, FixedRowsFormat):
        fields = [(column.name, column.dtype) for column in columns]
        spec = spec.model_copy(update={"format": spec.format.model_copy(update={"dtype": fields})})
    return spec, replace(dataset, columns=columns)
