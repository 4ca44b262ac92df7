"""Deleting samples: a new version of the list of each batch concerned, and the rows that say when and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sqlalchemy as sa

from fastpath.deleted import DeletedPositions, write_deleted
from modyn_dagster.catalog.batches import BatchRow, list_batches
from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.deletions import lock_deletions, record_deletions, set_deleted_list
from modyn_dagster.catalog.engine import transaction
from modyn_dagster.errors import UnknownKey
from modyn_dagster.ingestion.deleted_lists import DeletedLists
from modyn_dagster.ingestion.places import deleted_of
from modyn_dagster.ingestion.replaced import sweep_replaced
from modyn_dagster.keys import KeyArray, keys_of, ordinals_of, positions_of
from modyn_dagster.storage import atomic_write, sweep_unfinished


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
