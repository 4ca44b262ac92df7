"""Deletion of samples: new lists of deleted positions, and removal of the files that deletions and purges replaced.

A list of deleted positions, or a pair of index and shard, is replaced once the row of its batch names a newer one. A training
that began before still reads it, maybe for the first time: while any pipeline trains on the dataset, all of them stay.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import sqlalchemy as sa

from fastpath.format.deletions import DeletedPositions, write_deleted
from modyn_dagster.catalog.batches import BatchRow, list_batches
from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.deletions import lock_deletions, record_deletions, set_deleted_list
from modyn_dagster.catalog.triggers import is_training
from modyn_dagster.data.batch_index import deleted_of, rewrite_of
from modyn_dagster.data.deleted_lists import DeletedLists
from modyn_dagster.errors import UnknownKey
from modyn_dagster.keys import KeyArray, keys_of, ordinals_of, positions_of
from modyn_dagster.storage import atomic_write, sweep_unfinished

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


@dataclass(frozen=True)
class BatchDeletion:
    """What a deletion means for one batch.

    Attributes:
        batch: as it was before.
        wanted: positions that are to be deleted, ``uint32[k]``, ascending.
        fresh: those of them that were not deleted before.
    """

    batch: BatchRow
    wanted: DeletedPositions
    fresh: DeletedPositions

    @property
    def n_already(self) -> int:
        """How many of the wanted positions were deleted before."""
        return len(self.wanted) - len(self.fresh)

    @property
    def fresh_keys(self) -> KeyArray:
        """Keys of the fresh positions."""
        return keys_of(self.batch.ordinal, self.fresh)


def plan_deletion(conn: sa.Connection, home: Path, dataset: DatasetRow, keys: KeyArray) -> list[BatchDeletion]:
    """What deleting these keys (``uint64[n]``, any order, repeats allowed) would do, by batch in ordinal order.

    Raises ``UnknownKey`` naming the smallest key that no ingested batch has.
    """
    keys = np.unique(keys)
    batches = list_batches(conn, dataset.id, "ingested")
    require_known(keys, batches, dataset.name)
    lists = DeletedLists(home, dataset.name, batches)
    ordinals = ordinals_of(keys)
    plan = []
    for batch in batches:
        start, stop = np.searchsorted(ordinals, [batch.ordinal, batch.ordinal + 1])
        if start < stop:
            wanted = positions_of(keys[start:stop]).astype(np.uint32)
            fresh = np.setdiff1d(wanted, lists.positions(batch.ordinal), assume_unique=True)
            plan.append(BatchDeletion(batch, wanted, fresh))
    return plan


def delete_samples(
    engine: sa.Engine, home: Path, dataset: DatasetRow, keys: KeyArray, reason: str | None = None
) -> list[BatchDeletion]:
    """Delete samples for good, all of them or none; what was deleted before is left as it is.

    Lists are on disk before the one transaction that makes them count, so a kill at any point and the same call again give
    the same end. Raises ``UnknownKey``, with nothing done, for a key that no ingested batch has.
    """
    with transaction(engine) as conn:
        lock_deletions(conn, dataset.id)
        plan = plan_deletion(conn, home, dataset, keys)
        lists = DeletedLists(home, dataset.name, [step.batch for step in plan])
        for step in plan:
            if len(step.fresh):
                _extend_list(conn, home, dataset, step, lists.positions(step.batch.ordinal))
                record_deletions(conn, dataset.id, step.fresh_keys, reason)
    sweep_replaced(engine, home, dataset)
    return plan


def require_known(keys: KeyArray, batches: Sequence[BatchRow], dataset: str) -> None:
    """Raise ``UnknownKey`` for the first of the keys that none of the batches has."""
    sizes = {batch.ordinal: int(batch.n_samples or 0) for batch in batches}
    ordinals, inverse = np.unique(ordinals_of(keys), return_inverse=True)
    limits = np.array([sizes.get(int(ordinal), 0) for ordinal in ordinals], dtype=np.int64)
    unknown = positions_of(keys) >= limits[inverse]
    if unknown.any():
        raise UnknownKey(int(keys[np.argmax(unknown)]), dataset)


def _extend_list(conn: sa.Connection, home: Path, dataset: DatasetRow, step: BatchDeletion, deleted: DeletedPositions) -> None:
    version = step.batch.deleted_version + 1
    path = home / deleted_of(dataset.name, step.batch.ordinal, version)
    sweep_unfinished(path)
    positions = np.union1d(deleted, step.fresh)
    with atomic_write(path) as out:
        write_deleted(out, positions)
    set_deleted_list(conn, step.batch.id, version=version, checksum=out.checksum, n_deleted=len(positions))
