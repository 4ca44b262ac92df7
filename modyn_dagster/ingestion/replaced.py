"""Files that deletions and purges have replaced: which they are, and when they go.

A list of deleted positions, or a pair of index and shard, is replaced once the row of its batch names a newer one. A training
that began before still reads it, maybe for the first time: so while any pipeline trains on the dataset all of them stay.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from modyn_dagster.catalog.batches import BatchRow, list_batches
from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.engine import transaction
from modyn_dagster.catalog.triggers import is_training
from modyn_dagster.ingestion.places import rewrite_of

_NAME: Final = re.compile(r"(?P<ordinal>\d+)(\.(?P<number>\d+))?\.(?P<kind>arrow|bin|deleted)")


def sweep_replaced(engine: sa.Engine, home: Path, dataset: DatasetRow) -> None:
    """Remove the replaced files of a dataset, unless a pipeline trains on it; of lists the last one before always stays.

    What a training, or a kill, keeps is removed by the next deletion or purge of whatever samples of the dataset.
    """
    with transaction(engine) as conn:
        # In this order: who begins to train after the question reads the files of these rows or later ones.
        batches = list_batches(conn, dataset.id, "ingested")
        if is_training(conn, dataset.id):
            return
    for path, age in _replaced(home, dataset.name, batches):
        if path.suffix != ".deleted" or age > 1:
            path.unlink(missing_ok=True)


def replaced_pairs(engine: sa.Engine, home: Path, dataset: DatasetRow) -> list[Path]:
    """Indexes and shards that were purged since and are still there, with what was purged."""
    with transaction(engine) as conn:
        batches = list_batches(conn, dataset.id, "ingested")
    return sorted(path for path, _ in _replaced(home, dataset.name, batches) if path.suffix != ".deleted")


def is_replaced(conn: sa.Connection, home: Path, dataset: DatasetRow, path: Path) -> bool:
    """Whether a path is, or was, that of a file of the dataset's batches that a deletion or purge has replaced."""
    if path.resolve().parent not in [folder.resolve() for folder in _folders(home, dataset.name)]:
        return False
    return _age(path, {batch.ordinal: batch for batch in list_batches(conn, dataset.id, "ingested")}) > 0


def _replaced(home: Path, dataset: str, batches: Iterable[BatchRow]) -> Iterator[tuple[Path, int]]:
    by_ordinal = {batch.ordinal: batch for batch in batches if batch.deleted_version}
    for folder in _folders(home, dataset):
        for path in folder.iterdir() if by_ordinal and folder.is_dir() else ():
            if (age := _age(path, by_ordinal)) > 0:
                yield path, age


def _age(path: Path, batches: dict[int, BatchRow]) -> int:
    """How many times a file was replaced; 0 for those that count, and for what is no file of these batches."""
    match = _NAME.fullmatch(path.name)
    batch = batches.get(int(match["ordinal"])) if match is not None else None
    if match is None or batch is None:
        return 0
    now = batch.deleted_version if match["kind"] == "deleted" else rewrite_of(str(batch.index_path))
    return now - int(match["number"] or 0)


def _folders(home: Path, dataset: str) -> list[Path]:
    return [home / kind / dataset for kind in ("batches", "shards")]
