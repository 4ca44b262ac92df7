"""Files of a batch below the home folder: paths of index, shard and deleted list, and late samples by the index.

Index and shard of a batch belong together and have the same stem: the ordinal, and behind a dot the number of the rewrite
once samples were purged. The row of the batch names its index, and with it its shard.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath

import numpy as np

from fastpath.format.index import BatchIndex
from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.database.mapping import as_datetime64


def index_of(dataset: str, ordinal: int, rewrite: int = 0) -> str:
    """The index of a batch, relative to the home folder.

    >>> index_of("clicks", 7), index_of("clicks", 7, rewrite=2)
    ('batches/clicks/7.arrow', 'batches/clicks/7.2.arrow')
    """
    return f"batches/{dataset}/{_stem(ordinal, rewrite)}.arrow"


def shard_of(dataset: str, ordinal: int, rewrite: int = 0) -> str:
    """The bytes of those samples of a batch that are not read from their source, relative to the home folder."""
    return f"shards/{dataset}/{_stem(ordinal, rewrite)}.bin"


def deleted_of(dataset: str, ordinal: int, version: int) -> str:
    """A version of the list of deleted positions of a batch, relative to the home folder."""
    return f"batches/{dataset}/{ordinal}.{version}.deleted"


def rewrite_of(index_path: str) -> int:
    """Which rewrite an index is; 0: as ingested.

    >>> rewrite_of("batches/clicks/7.arrow"), rewrite_of("batches/clicks/7.2.arrow")
    (0, 2)
    """
    return int(PurePosixPath(index_path).stem.partition(".")[2] or 0)


def _stem(ordinal: int, rewrite: int) -> str:
    return f"{ordinal}.{rewrite}" if rewrite else f"{ordinal}"


def late_by_batch(home: Path, batches: Sequence[BatchRow]) -> Mapping[int, int]:
    """Late samples of each ingested batch by ordinal, deleted ones included; ``batches`` of a dataset in ordinal order."""
    late, reached = {}, None
    for batch in batches:
        if batch.state != "ingested" or batch.time_max is None:
            continue
        late[batch.ordinal] = count_late(home, batch, reached)
        reached = batch.time_max if reached is None else max(reached, batch.time_max)
    return late


def count_late(home: Path, batch: BatchRow, reached: datetime | None) -> int:
    """How many samples of an ingested batch lie before the largest time of earlier batches; its index is read if need be."""
    if reached is None or batch.time_min is None or batch.time_max is None or batch.time_min >= reached:
        return 0
    if batch.time_max < reached:
        return int(batch.n_samples or 0)
    times = BatchIndex.open(home / str(batch.index_path)).times
    return int(np.searchsorted(times, as_datetime64(reached), side="left"))
