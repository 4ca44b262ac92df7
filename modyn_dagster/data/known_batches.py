"""Visible batches of datasets, remembered between reads, and their facts as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from modyn_dagster.catalog.batches import BatchRow, batch_versions, batches_at
from modyn_dagster.keys import key_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_NO_TIME: Final = np.iinfo(np.int64).min

Integers = npt.NDArray[np.int64]
Times = npt.NDArray[np.datetime64]


@dataclass(frozen=True, slots=True)
class BatchColumns:
    """Facts of batches, one element per batch in ordinal order, for questions about all of them.

    Attributes:
        ordinals: ``int64[n]``, ascending.
        last_keys: key of the last sample, ``int64[n]``, ascending.
        n_train: number of train samples, ``int64[n]``.
        first, last: smallest and largest sample time, ``datetime64[us][n]``; not a time where there is none.
        train_last: largest time of a train sample, ``datetime64[us][n]``; not a time where there is none.
    """

    ordinals: Integers
    last_keys: Integers
    n_train: Integers
    first: Times
    last: Times
    train_last: Times

    @classmethod
    def of(cls, batches: Sequence[BatchRow]) -> Self:
        """Facts of ingested batches."""
        return cls(
            np.array([batch.ordinal for batch in batches], dtype=np.int64),
            np.array([key_of(batch.ordinal, int(batch.n_samples or 0) - 1) for batch in batches], dtype=np.int64),
            np.array([int(batch.n_train or 0) for batch in batches], dtype=np.int64),
            _times([batch.time_min for batch in batches]),
            _times([batch.time_max for batch in batches]),
            _times([batch.train_time_max for batch in batches]),
        )

    def head(self, n: int) -> Self:
        """Facts of the first ``n`` batches."""
        return self._part(slice(n))

    def tail(self, begin: int) -> Self:
        """Facts of all but the first ``begin`` batches."""
        return self._part(slice(begin, None))

    def _part(self, part: slice) -> Self:
        return type(self)(*(getattr(self, field.name)[part] for field in fields(self)))


def _times(moments: Sequence[datetime | None]) -> Times:
    whole = [_NO_TIME if moment is None else (moment - _EPOCH) // _MICROSECOND for moment in moments]
    return np.array(whole, dtype=np.int64).view("datetime64[us]")


@dataclass(frozen=True, slots=True)
class BatchList:
    """Visible batches of a dataset in ordinal order, as rows and as columns."""

    rows: Sequence[BatchRow]
    columns: BatchColumns


class KnownBatches:
    """Visible batches of datasets as this process read them last. Safe in several threads.

    Reading them again asks Postgres for the versions of all rows, and transfers only the rows that are new or changed: a tick
    over ten thousand batches takes milliseconds instead of a second, and views of one dataset share their rows.
    """

    def __init__(self) -> None:
        self._read: dict[int, tuple[str, BatchList]] = {}

    def read(self, conn: sa.Connection, dataset_id: int) -> BatchList:
        """The batches that pipelines see now."""
        versions = batch_versions(conn, dataset_id)
        known, batches = self._read.get(dataset_id, ("", BatchList((), BatchColumns.of(()))))
        if versions == known:
            return batches
        # Of another start, equal versions say nothing: the server may have been restored from a backup.
        same = known.partition(";")[0] == versions.partition(";")[0]
        earlier = dict(zip(_split(known), batches.rows, strict=True)) if same else {}
        changed = [int(version.partition(" ")[0]) for version in _split(versions) if version not in earlier]
        fetched = {row.ordinal: row for row in batches_at(conn, dataset_id, changed)}
        rows = [earlier.get(version) or fetched.get(int(version.partition(" ")[0])) for version in _split(versions)]
        # A dataset that is being removed may have lost rows between the two queries.
        present = tuple(row for row in rows if row is not None)
        batches = BatchList(present, BatchColumns.of(present))
        if len(present) == len(rows):
            self._read[dataset_id] = versions, batches
        return batches


def _split(versions: str) -> list[str]:
    """One version per batch; the first part of the text is the server's."""
    return versions.split(";")[1:]
