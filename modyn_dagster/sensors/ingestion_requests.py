"""Runs that ingest the open batches of a dataset, of samples or of labels: one each, or for a backlog one for some neighbours.

A Dagster run takes as long as the ingestion of dozens of small batches, so a folder with thousands of files is ingested in
stretches.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

import dagster as dg

from modyn_dagster.assets.dagster_runs import BATCH_TAG, STRETCH_TAG, ended_runs
from modyn_dagster.backoff import growing_pause

if TYPE_CHECKING:
    from modyn_dagster.catalog.batches import BatchRow
    from modyn_dagster.catalog.labels.label_batches import LabelBatchRow

    Batches = Sequence[BatchRow] | Sequence[LabelBatchRow]

#: Runs of a dataset that wait or are under way: a tick has a minute, and each run that it asks for takes some of that.
MOST_RUNS: Final = 50
#: With more open batches than that, a run gets a stretch of them, and there are fewer: Dagster plans each of its partitions.
_MOST_STRETCHES: Final = 10
STRETCH: Final = 100
_LONGEST_PAUSE: Final = 3600.0
#: Dagster's own tags for the range of partitions that a run is about.
_RANGE_TAGS: Final = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")


@dataclass(frozen=True, slots=True)
class IngestionRuns:
    """Runs that ingest the batches of one dataset.

    Attributes:
        tag: of all of them, with the dataset's name.
        prefix: beginning of their keys.
        interval: seconds of the first pause after a run that left its batch open.
    """

    tag: tuple[str, str]
    prefix: str
    interval: int


def ingestion_requests(
    instance: dg.DagsterInstance, runs: IngestionRuns, under_way: Sequence[dg.DagsterRun], batches: "Batches"
) -> list[dg.RunRequest]:
    """Runs for the open ``batches`` that none of the dataset's runs ``under_way`` is for, in order of the stream.

    A run that ended and left its batch open met something that passes (a full disk, a server that restarted): it is asked
    for again, without end, each time after twice the pause, up to an hour. Batches that a stretch left open get a run each.
    """
    idle = _without(batches, [run.tags for run in under_way])
    is_backlog = len(idle) > MOST_RUNS
    stretches = _stretches(idle) if is_backlog else ([batch] for batch in idle)
    asked = (request for stretch in stretches for request in _requests(instance, runs, stretch))
    return list(islice(asked, max(0, (_MOST_STRETCHES if is_backlog else MOST_RUNS) - len(under_way))))


def _without(batches: "Batches", under_way: Sequence[Mapping[str, str]]) -> "list[BatchRow | LabelBatchRow]":
    """The batches that no run is under way for, from the tags of those runs."""
    keys = {tags.get(BATCH_TAG) for tags in under_way}
    ordinals = {ordinal for tags in under_way for ordinal in _ordinals(tags.get(STRETCH_TAG))}
    return [batch for batch in batches if batch.partition_key not in keys and batch.ordinal not in ordinals]


def _ordinals(stretch: str | None) -> range:
    if stretch is None:
        return range(0)
    first, last = stretch.split("-")
    return range(int(first), int(last) + 1)


def _stretches(batches: "list[BatchRow | LabelBatchRow]") -> "Iterator[list[BatchRow | LabelBatchRow]]":
    """Neighbours in the stream, so that Dagster's range from the first to the last holds no other batch."""
    stretch: list[BatchRow | LabelBatchRow] = []
    for batch in batches:
        if stretch and (batch.ordinal != stretch[-1].ordinal + 1 or len(stretch) == STRETCH):
            yield stretch
            stretch = []
        stretch.append(batch)
    if stretch:
        yield stretch


def _requests(
    instance: dg.DagsterInstance, runs: IngestionRuns, stretch: "Sequence[BatchRow | LabelBatchRow]"
) -> Iterator[dg.RunRequest]:
    first, last = stretch[0], stretch[-1]
    tags = dict([runs.tag]) | {STRETCH_TAG: f"{first.ordinal}-{last.ordinal}"}
    if len(stretch) > 1 and ended_runs(instance, tags, limit=1) == []:
        ends = dict(zip(_RANGE_TAGS, (first.partition_key, last.partition_key)))
        yield dg.RunRequest(run_key=f"{runs.prefix}:{tags[STRETCH_TAG]}", tags=tags | ends)
        return
    # One of them may have ended the process of a run that took them all: it must not keep the others waiting.
    for batch in stretch:
        request = _single(instance, runs, batch.partition_key)
        if request is not None:
            yield request


def _single(instance: dg.DagsterInstance, runs: IngestionRuns, partition: str) -> dg.RunRequest | None:
    """Run for one partition that no run is under way for; None while the pause after the last one is not over."""
    tags = dict([runs.tag]) | {BATCH_TAG: partition}
    ended = ended_runs(instance, tags)
    if ended is None:
        return None
    if ended:
        pause = growing_pause(runs.interval, len(ended), _LONGEST_PAUSE)
        if time.time() - (ended[0].end_time or 0) < pause:
            return None
    return dg.RunRequest(run_key=f"{runs.prefix}:{partition}:{len(ended) + 1}", partition_key=partition, tags=tags)
