"""Late samples: those whose time lies before what earlier batches had reached. They change nothing that was decided."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import numpy as np

from fastpath.index import BatchIndex
from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.moments import as_datetime64
from modyn_dagster.ingestion.storage_errors import storage_errors


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
    with storage_errors():
        times = BatchIndex.open(home / str(batch.index_path)).times
        return int(np.searchsorted(times, as_datetime64(reached), side="left"))
