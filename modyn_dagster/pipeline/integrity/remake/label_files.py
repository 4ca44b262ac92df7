"""Label files, made again from the label batches or the samples that delivered their labels.

A row of the catalog names the sample batches that have labels in a file. A sample batch is ingested as a whole, so the file holds
what its label batch has for all of their samples, less what was deleted before.
"""

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import PurePosixPath
from typing import Final

import numpy as np
import sqlalchemy as sa

from fastpath.format.labels.label_file import LabelRows, write_label_rows
from modyn_dagster.catalog.batches import batches_at
from modyn_dagster.catalog.datasets import DatasetRow, get_dataset
from modyn_dagster.catalog.deletions import block_deletions, deleted_in_order, unpurged_keys
from modyn_dagster.catalog.labels.label_batches import LabelBatchRow, ingested_label_batches
from modyn_dagster.catalog.labels.label_files import LabelFileRow, label_files
from modyn_dagster.errors import NotReproducible
from modyn_dagster.ingestion.batches.own_labels import own_label_rows
from modyn_dagster.ingestion.labels.delivered_again import delivered_rows, read_again
from modyn_dagster.ingestion.sources.source import open_source
from modyn_dagster.pipeline.integrity.remake.batch_files import content_as_ingested
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.storage import StagedFile

#: Names that ingestion gives, with the number of the rewrite by a purge: labels of a label batch, labels that waited for a
#: sample batch, labels in a column of a sample batch.
_NAME: Final = re.compile(r"(?P<kind>labels|samples|own)_(?P<ordinal>\d+)_\d+(~\d+)?")
_DOING: Final = "made again"


def remake_label_file(platform: Platform, dataset: DatasetRow, file: LabelFileRow) -> None:
    """Read what delivered the labels of a file again and write the file, if that gives the recorded one.

    Raises:
        NotReproducible: it gives other labels, or ingestion did not write the file.
        DataError: a file that delivered labels is gone or cannot be read. ``ChangedBatch``: it has other bytes.
        UnknownName: the project has no file of the dataset.
    """
    kind, ordinal = _origin(file)
    if kind not in _MAKERS:
        raise NotReproducible("label file", "a name that ingestion gives", file.path, doing=_DOING)
    with platform.transaction() as conn:
        dataset = get_dataset(conn, dataset.name)
    rows = _MAKERS[kind](platform, dataset, ordinal, file)
    if len(rows.keys) != file.n_rows:
        raise NotReproducible("labels", f"{file.n_rows} rows", len(rows.keys), doing=_DOING)
    staged = StagedFile(platform.home / file.path)
    try:
        with staged.as_hashed_file() as out:
            write_label_rows(out, rows.sorted())
        if out.checksum != file.checksum:
            raise NotReproducible("labels", f"checksum {file.checksum}", out.checksum, doing=_DOING)
        with platform.transaction() as conn:
            # A purge writes a file of its own without labels that this one has, and another repair the same one.
            block_deletions(conn, dataset.id)
            if file in label_files(conn, dataset.id) and staged.is_unpublished:
                staged.publish()
    finally:
        staged.discard()


def _delivered(platform: Platform, dataset: DatasetRow, ordinal: int, file: LabelFileRow) -> LabelRows:
    """Labels of a label batch whose samples were there when it was ingested."""
    with platform.transaction() as conn:
        [batch] = [batch for batch in ingested_label_batches(conn, dataset.id) if batch.ordinal == ordinal]
    rows = _rows_of(platform, dataset, batch, {part[0] for part in file.parts})
    with platform.transaction() as conn:
        return _without_first_deleted(conn, dataset, rows, file.n_rows)


def _waited(platform: Platform, dataset: DatasetRow, ordinal: int, file: LabelFileRow) -> LabelRows:
    """Labels that waited for the samples of a batch: those of the first label batches, as later ones found the samples there."""
    parts: list[LabelRows] = []
    for batch in _label_batches_before(platform, dataset, ordinal, file.arrival):
        if not parts or sum(len(part.keys) for part in parts) < file.n_rows:
            parts.append(_rows_of(platform, dataset, batch, [ordinal]))
    if not parts:
        raise NotReproducible("label batches", "one whose labels waited", "none", doing=_DOING)
    return LabelRows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _own(platform: Platform, dataset: DatasetRow, ordinal: int, file: LabelFileRow) -> LabelRows:
    """Labels in a column of the samples of a batch, less those of purged samples."""
    with platform.transaction() as conn:
        [batch] = batches_at(conn, dataset.id, [ordinal])
    dataset, content = content_as_ingested(platform, dataset, batch)
    rows = own_label_rows(platform.dataset(dataset.name), dataset, ordinal, content.assembled)
    if len(rows.keys) <= file.n_rows:
        return rows
    with platform.transaction() as conn:
        deleted = deleted_in_order(conn, dataset.id, int(rows.keys.min()), int(rows.keys.max()))
        purged = np.setdiff1d(deleted, unpurged_keys(conn, dataset.id, deleted))
    return rows.take(~np.isin(rows.keys, purged))


def _rows_of(platform: Platform, dataset: DatasetRow, batch: LabelBatchRow, ordinals: Collection[int]) -> LabelRows:
    """Labels that the files of a label batch have for the samples of some batches, in the order of their rows."""
    spec = platform.dataset(dataset.name)
    if not spec.has_label_files:
        raise NotReproducible("label.files of the dataset", "a place", "none", doing=_DOING)
    source = open_source(platform.project.label_root_of(dataset.name), spec.storage_options)
    ready = read_again(source, spec, dataset, batch)
    with platform.transaction() as conn:
        return delivered_rows(conn, dataset, ready, ordinals)


def _without_first_deleted(conn: sa.Connection, dataset: DatasetRow, rows: LabelRows, n: int) -> LabelRows:
    """Leave out the labels of the samples that were deleted first, until ``n`` are left.

    A label of a sample that was deleted before it arrived is not kept, one of a sample that was deleted later is.
    """
    excess = len(rows.keys) - n
    if excess <= 0:
        return rows
    deleted = deleted_in_order(conn, dataset.id, int(rows.keys.min()), int(rows.keys.max()))
    place = {key: i for i, key in enumerate(deleted.tolist())}
    places = np.array([place.get(key, len(place)) for key in rows.keys.tolist()])
    first = np.argsort(places, kind="stable")[:excess]
    return rows.take(np.setdiff1d(np.arange(len(places)), first[places[first] < len(place)]))


def _label_batches_before(platform: Platform, dataset: DatasetRow, ordinal: int, arrival: int) -> list[LabelBatchRow]:
    """Label batches in order of ingestion whose labels can have waited for a sample batch and are known from an arrival on."""
    with platform.transaction() as conn:
        [samples] = batches_at(conn, dataset.id, [ordinal])
        batches = ingested_label_batches(conn, dataset.id)
        files = label_files(conn, dataset.id)
    # They have a file with labels of these samples if the samples were there.
    found = {_origin(file) for file in files if ordinal in [part[0] for part in file.parts]}
    return [
        batch
        for batch in batches
        if batch.n_waiting and max(batch.arrival, samples.arrival or 0) == arrival and ("labels", batch.ordinal) not in found
    ]


def _origin(file: LabelFileRow) -> tuple[str, int]:
    """Kind and ordinal in the name of a label file; empty and -1 where ingestion has not named it."""
    name = _NAME.fullmatch(PurePosixPath(file.path).stem)
    return ("", -1) if name is None else (name["kind"], int(name["ordinal"]))


_MAKERS: Final[Mapping[str, Callable[[Platform, DatasetRow, int, LabelFileRow], LabelRows]]] = {
    "labels": _delivered,
    "samples": _waited,
    "own": _own,
}
