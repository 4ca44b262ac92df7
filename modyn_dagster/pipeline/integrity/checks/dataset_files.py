"""Checks of a dataset's own files: lists of deleted samples, indexes, shards and label files."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fastpath.format.deletions import read_deleted
from fastpath.format.index import BatchIndex
from modyn_dagster.catalog.batches import BatchRow, get_batch, list_batches
from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.labels.label_files import LabelFileRow, label_files
from modyn_dagster.data.batch_index import deleted_list_path, rewrite_number, shard_path
from modyn_dagster.errors import CorruptFile, UnknownName
from modyn_dagster.files.mounting import files_at
from modyn_dagster.pipeline.integrity.checks.check import Check, file_findings
from modyn_dagster.pipeline.integrity.finding import Finding, finding_of
from modyn_dagster.pipeline.integrity.pacing import Pace
from modyn_dagster.pipeline.integrity.remake.batch_files import remake_batch_files, remake_deleted_list
from modyn_dagster.pipeline.integrity.remake.label_files import remake_label_file
from modyn_dagster.pipeline.platform import Platform


def deleted_list_checks(platform: Platform, dataset: DatasetRow) -> Iterator[Check]:
    """Check the current list of deleted samples of each batch that has one."""
    for batch in _ingested(platform, dataset):
        if batch.deleted_version == 0:
            continue
        path = platform.home / deleted_list_path(dataset.name, batch.ordinal, batch.deleted_version)
        findings = partial(_list_findings, platform.home, path, dataset, batch)
        remake = partial(remake_deleted_list, platform, dataset, batch, path)
        yield Check(["deleted-lists"], [path], findings, partial(_is_current, platform, batch), remake)


def batch_checks(platform: Platform, dataset: DatasetRow) -> Iterator[Check]:
    """Check the index of each ingested batch, and the shard that it names."""
    for batch in _ingested(platform, dataset):
        index = platform.home / str(batch.index_path)
        shard = platform.home / shard_path(dataset.name, batch.ordinal, rewrite_number(str(batch.index_path)))
        findings = partial(_batch_findings, platform.home, index, shard, dataset, batch)
        remake = partial(remake_batch_files, platform, dataset, batch)
        yield Check(["indexes", "shards"], [index, shard], findings, partial(_is_current, platform, batch), remake)


def label_file_checks(platform: Platform, dataset: DatasetRow) -> Iterator[Check]:
    """Check each label file."""
    with platform.transaction() as conn:
        files = label_files(conn, dataset.id)
    remedy = (
        "`modyn-dagster repair` makes it again from the files that delivered its labels, if these are unchanged; "
        f"else restore a backup of MODYN_HOME/labels/{dataset.name}"
    )
    for row in files:
        path, owner = platform.home / row.path, f"dataset {dataset.name}, labels of arrival {row.arrival}"
        findings = partial(file_findings, "labels", platform.home, path, row.checksum, owner, remedy)
        remake = partial(remake_label_file, platform, dataset, row)
        yield Check(["labels"], [path], findings, partial(_is_named, platform, dataset, row), remake)


def _is_named(platform: Platform, dataset: DatasetRow, row: LabelFileRow) -> bool:
    """True unless a purge has written the labels again, or the dataset was removed."""
    with platform.transaction() as conn:
        return row in label_files(conn, dataset.id)


def owner_of(dataset: DatasetRow, batch: BatchRow) -> str:
    """Text that names the batch."""
    return f"dataset {dataset.name}, batch {batch.partition_key}"


def _ingested(platform: Platform, dataset: DatasetRow) -> list[BatchRow]:
    with platform.transaction() as conn:
        return list_batches(conn, dataset.id, "ingested")


def _is_current(platform: Platform, batch: BatchRow) -> bool:
    """True unless a deletion or purge has given the batch other files, or the dataset was removed."""
    try:
        with platform.transaction() as conn:
            now = get_batch(conn, batch.dataset_id, batch.partition_key)
    except UnknownName:
        return False
    return (now.index_path, now.deleted_version) == (batch.index_path, batch.deleted_version)


def _list_findings(home: Path, path: Path, dataset: DatasetRow, batch: BatchRow, pace: Pace) -> Iterator[Finding]:
    try:
        pace.verify(path, str(batch.deleted_checksum))
        # Its own copy is of the bytes that were verified.
        files_at(path).renewed(path)
        n = len(read_deleted(path))
        if n != batch.n_deleted:
            raise CorruptFile(path, f"{batch.n_deleted} deleted samples, as the catalog says", str(n))
    except CorruptFile as error:
        remedy = "`modyn-dagster repair` writes it again from the deletions in Postgres"
        yield finding_of("deleted-lists", home, error, owner_of(dataset, batch), remedy)


def _batch_findings(home: Path, path: Path, shard: Path, dataset: DatasetRow, batch: BatchRow, pace: Pace) -> Iterator[Finding]:
    remedy = _remedy(dataset, batch)
    try:
        pace.verify(path, str(batch.index_checksum))
        files_at(path).renewed(path)
        index = BatchIndex.open(path)
        if index.n != batch.n_samples:
            raise CorruptFile(path, f"{batch.n_samples} samples, as the catalog says", str(index.n))
    except CorruptFile as error:
        # The checksum of the shard is in the index: it is verified once that is sound.
        yield finding_of("indexes", home, error, owner_of(dataset, batch), remedy)
        return
    for file in index.files:
        if file.path is None:
            yield from file_findings("shards", home, shard, file.checksum, owner_of(dataset, batch), remedy, pace)


def _remedy(dataset: DatasetRow, batch: BatchRow) -> str:
    backup = f"a backup of MODYN_HOME/batches/{dataset.name} and MODYN_HOME/shards/{dataset.name}"
    if rewrite_number(str(batch.index_path)):
        return f"samples were purged from it, so it can only be restored from {backup} that was taken after the purge"
    return f"`modyn-dagster repair` makes it again from the source files, if these are unchanged; else restore {backup}"
