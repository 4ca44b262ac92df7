"""Purge of the labels of deleted samples from the label files of a dataset, and of their ids.

A file is written again without them, under a name of its own, and is current once its row names it. The old one is removed after
that commit. Readers that were open keep their mapping of it; those that open it later find it missing, and their view is renewed.
"""

from pathlib import Path, PurePosixPath
from typing import Final

import numpy as np
import sqlalchemy as sa

from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.deletions import lock_deletions
from modyn_dagster.catalog.labels.label_files import LabelFileRow, label_files, replace_label_file
from modyn_dagster.catalog.labels.sample_ids import forget_ids
from modyn_dagster.data.label_files import label_file_path, open_label_file, write_label_file
from modyn_dagster.files.mounting import files_at
from modyn_dagster.keys import KeyArray, ordinals_of

#: Between the name of a label file and the number of its rewrite.
_REWRITE: Final = "~"


def purge_labels(engine: sa.Engine, home: Path, dataset: DatasetRow, keys: KeyArray) -> int:
    """Remove labels and ids of purged samples (``uint64[n]``); returns the number of labels removed.

    A label of such an id that arrives later waits like one of an id that never was.

    The call can be repeated after a kill at any point. Raises ``CorruptFile`` when a label file was changed.
    """
    ordinals, n_removed = set(np.unique(ordinals_of(keys)).tolist()), 0
    with transaction(engine) as conn:
        lock_deletions(conn, dataset.id)
        files = label_files(conn, dataset.id)
        for file in files:
            if ordinals & {part[0] for part in file.parts}:
                n_removed += _rewrite(conn, home, dataset, file, keys)
        forget_ids(conn, dataset.id, keys)
    _sweep(engine, home, dataset)
    return n_removed


def _rewrite(conn: sa.Connection, home: Path, dataset: DatasetRow, file: LabelFileRow, keys: KeyArray) -> int:
    rows = open_label_file(home, file).rows()
    kept = ~np.isin(rows.keys, keys)
    if kept.all():
        return 0
    stem, _, number = PurePosixPath(file.path).stem.partition(_REWRITE)
    name = f"{stem}{_REWRITE}{int(number or 0) + 1}"
    replace_label_file(conn, file.id, write_label_file(home, dataset.name, name, rows.take(kept)))
    return int(np.count_nonzero(~kept))


def _sweep(engine: sa.Engine, home: Path, dataset: DatasetRow) -> None:
    """Remove the files that a rewrite has replaced, those of a killed purge among them."""
    with transaction(engine) as conn:
        named = {home / file.path for file in label_files(conn, dataset.id)}
    folder = (home / label_file_path(dataset.name, "")).parent
    stems = {path.stem.partition(_REWRITE)[0] for path in named}
    for path in files_at(folder).names(folder):
        if path not in named and path.suffix == ".arrow" and path.stem.partition(_REWRITE)[0] in stems:
            files_at(path).remove(path)
    if named:
        # Purged labels do not come back by a power cut.
        files_at(folder).settle(folder)
