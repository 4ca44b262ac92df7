"""Which open batches to ask for: new ones at once, those whose run ended without closing them after a growing pause."""

import time
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

import dagster as dg

from modyn_dagster.assets.dagster_runs import BATCH_TAG, DATASET_TAG, ended_runs, going_runs
from modyn_dagster.spec.dataset import DatasetSpec

if TYPE_CHECKING:
    from modyn_dagster.catalog.batches import BatchRow

#: A tick has a minute; every batch costs it a query and a run to be made.
_MOST_PER_TICK: Final = 50
_LONGEST_PAUSE: Final = 3600.0


def ingestion_requests(instance: dg.DagsterInstance, dataset: DatasetSpec, batches: "Sequence[BatchRow]") -> list[dg.RunRequest]:
    """One run per open batch that none is under way for, in order of the stream.

    A run that ended and left its batch open met something that passes (a full disk, a server that restarted): it is asked
    for again, without end, each time after twice the pause, up to an hour.
    """
    going = {run.tags.get(BATCH_TAG) for run in going_runs(instance, {DATASET_TAG: dataset.name})}
    idle = (batch.partition_key for batch in batches if batch.partition_key not in going)
    asked = (_request(instance, dataset, partition) for partition in idle)
    return list(islice((request for request in asked if request is not None), _MOST_PER_TICK))


def _request(instance: dg.DagsterInstance, dataset: DatasetSpec, partition: str) -> dg.RunRequest | None:
    tags = {DATASET_TAG: dataset.name, BATCH_TAG: partition}
    ended = ended_runs(instance, tags)
    if ended is None:
        return None
    if ended:
        pause = min(_LONGEST_PAUSE, dataset.sensor_interval * 2.0 ** (len(ended) - 1))
        if time.time() - (ended[0].end_time or 0) < pause:
            return None
    return dg.RunRequest(run_key=f"{dataset.name}:{partition}:{len(ended) + 1}", partition_key=partition, tags=tags)
