"""Purging deleted samples: their bytes in our shards, their labels and their attributes are overwritten for good.

Shard and index of a batch are written anew, under a stem with the next number, and count once the batch's row names the new
index: whoever opens the batch finds one pair or the other, and both are what their checksums say. They are written before
anything is locked, which happens only to give them their names. The old pair is removed afterwards, or by a later purge while
a pipeline trains on the dataset (``replaced``). Keys and times stay, and so do original files, which are never touched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import sqlalchemy as sa

from modyn_dagster.catalog.batches import BatchRow, FileFacts, lock_batch, set_index, source_files
from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.deletions import forget_samples, lock_deletions, unpurged_keys
from modyn_dagster.errors import CorruptFile
from modyn_dagster.ingestion.deletion.delete import is_replaced, plan_deletion, sweep_replaced
from modyn_dagster.ingestion.deletion.rewrite import Rewrite
from modyn_dagster.keys import KeyArray, keys_of, positions_of
from modyn_dagster.spec.dataset import DatasetSpec

#: So many batches at most lie on the disk twice while a long purge goes on.
_SWEEP_EVERY: Final = 100


@dataclass(frozen=True)
class PurgedBatch:
    """What was purged of one batch.

    Attributes:
        n_purged: samples that were purged now; those that were purged before are not counted.
        in_place: original files that hold samples of ours, and how many: they are read there and were not touched.
        copied_from: original files whose bytes were copied to the shard; where they still exist, they hold the samples too.
    """

    batch: BatchRow
    n_purged: int
    in_place: Mapping[str, int]
    copied_from: Sequence[str]


def purge_samples(engine: sa.Engine, home: Path, spec: DatasetSpec, dataset: DatasetRow, keys: KeyArray) -> list[PurgedBatch]:
    """Purge those of some keys (``uint64[n]``) that are deleted, batch by batch, each as a whole or not at all.

    Killed at any point and called again it ends the same. Raises ``CorruptFile`` when a shard or index is not what it was.
    """
    with transaction(engine) as conn:
        plan = plan_deletion(conn, home, dataset, keys)
    purge = _Purge(engine, home, spec, dataset)
    purged: list[PurgedBatch] = []
    for step in plan:
        purged.append(purge.of(step.batch.id, keys_of(step.batch.ordinal, step.wanted)))
        if len(purged) % _SWEEP_EVERY == 0:
            sweep_replaced(engine, home, dataset)
    sweep_replaced(engine, home, dataset)
    return purged


class _Purge:
    def __init__(self, engine: sa.Engine, home: Path, spec: DatasetSpec, dataset: DatasetRow) -> None:
        self._engine, self._home, self._spec, self._dataset = engine, home, spec, dataset

    def of(self, batch_id: int, keys: KeyArray) -> PurgedBatch:
        """Purge what is not purged yet of one batch; the row returned is that after it."""
        while True:
            with transaction(self._engine) as conn:
                batch = lock_batch(conn, batch_id)
                fresh = unpurged_keys(conn, self._dataset.id, keys)
                recorded = source_files(conn, batch_id)
            try:
                done = self._attempt(batch, keys, fresh, recorded)
            except CorruptFile as error:
                if not self._is_replaced(Path(error.path)):
                    raise
                done = None
            if done is not None:
                return done

    def _attempt(self, batch: BatchRow, keys: KeyArray, fresh: KeyArray, recorded: Sequence[FileFacts]) -> PurgedBatch | None:
        """None, with nothing done, when somebody else purged samples of the batch meanwhile: look again."""
        with Rewrite(self._home, self._spec, self._dataset, batch) as rewrite:
            counts = rewrite.files_of(positions_of(keys))
            copied_from = self._originals(rewrite, fresh, recorded) if None in counts else []
            staged = rewrite.stage(positions_of(fresh)) if len(fresh) else None
            with transaction(self._engine) as conn:
                lock_deletions(conn, self._dataset.id)
                now = lock_batch(conn, batch.id)
                found = unpurged_keys(conn, self._dataset.id, keys)
                if now.index_path != batch.index_path or not np.array_equal(found, fresh) or not rewrite.is_unpublished:
                    return None
                if staged is not None:
                    rewrite.publish()
                    set_index(conn, batch.id, path=staged.path, checksum=staged.checksum)
                    now = replace(now, index_path=staged.path, index_checksum=staged.checksum)
                if len(fresh):
                    forget_samples(conn, self._dataset.id, fresh)
        in_place = {path: n for path, n in counts.items() if path is not None}
        return PurgedBatch(now, len(fresh), in_place, copied_from)

    def _originals(self, rewrite: Rewrite, fresh: KeyArray, recorded: Sequence[FileFacts]) -> list[str]:
        """Files whose bytes lie in the shard: those of the samples where a sample is a file, else all of the batch."""
        copied = [file for file in recorded if file.mtime_ns is None]
        if self._spec.format.kind != "files":
            return [file.path for file in copied]
        found = rewrite.checksums_of(positions_of(fresh))
        return [file.path for file in copied if file.checksum in found]

    def _is_replaced(self, path: Path) -> bool:
        with transaction(self._engine) as conn:
            return is_replaced(conn, self._home, self._dataset, path)
