"""Files of a batch below the home folder: paths of index, shard and deleted list, and late samples by the index.

Index and shard of a batch belong together and have the same stem: the ordinal, followed by a dot and the number of the rewrite
once samples were purged. The row of the batch names its index, and so its shard.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath

import numpy as np

from fastpath.format.index import BatchIndex
from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.database.mapping import as_datetime64


def index_path(dataset: str, ordinal: int, rewrite: int = 0) -> str:
    """Path of the index of a batch, relative to the home folder.

    >>> index_path("clicks", 7), index_path("clicks", 7, rewrite=2)
    ('batches/clicks/7.arrow', 'batches/clicks/7.2.arrow')
    """
    return f"batches/{dataset}/{_stem(ordinal, rewrite)}.arrow"


def shard_path(dataset: str, ordinal: int, rewrite: int = 0) -> str:
    """Path of the shard of a batch, relative to the home folder: the samples that are not read from their source."""
    return f"shards/{dataset}/{_stem(ordinal, rewrite)}.bin"


def deleted_list_path(dataset: str, ordinal: int, version: int) -> str:
    """Path of a version of the list of deleted positions of a batch, relative to the home folder."""
    return f"batches/{dataset}/{ordinal}.{version}.deleted"


def rewrite_number(path: str) -> int:
    """Number of the rewrite of an index, by its path; 0: as ingested.

    >>> rewrite_number("batches/clicks/7.arrow"), rewrite_number("batches/clicks/7.2.arrow")
    (0, 2)
    """
    return int(PurePosixPath(path).stem.partition(".")[2] or 0)


def _stem(ordinal: int, rewrite: int) -> str:
    return f"{ordinal}.{rewrite}" if rewrite else f"{ordinal}"


def open_index(home: Path, batch: BatchRow) -> BatchIndex:
    """Open the index of an ingested batch. Raises ``CorruptFile`` when its checksum differs."""
    return BatchIndex.open(home / str(batch.index_path), batch.index_checksum)


def late_by_batch(home: Path, batches: Sequence[BatchRow]) -> Mapping[int, int]:
    """Late samples of each ingested batch by ordinal, deleted ones included; ``batches`` of a dataset in ordinal order."""
    late, latest = {}, None
    for batch in batches:
        if batch.state != "ingested" or batch.time_max is None:
            continue
        late[batch.ordinal] = count_late(home, batch, latest)
        latest = batch.time_max if latest is None else max(latest, batch.time_max)
    return late


def count_late(home: Path, batch: BatchRow, latest: datetime | None) -> int:
    """Number of samples of an ingested batch before the latest time of earlier batches; reads the index only if needed."""
    if latest is None or batch.time_min is None or batch.time_max is None or batch.time_min >= latest:
        return 0
    if batch.time_max < latest:
        return int(batch.n_samples or 0)
    times = BatchIndex.open(home / str(batch.index_path)).times
    return int(np.searchsorted(times, as_datetime64(latest), side="left"))
