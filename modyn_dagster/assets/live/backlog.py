"""Turn of a training run: further triggers of the backlog, trained and shown in the same Dagster run.

A backlog then waits neither for ticks nor for new processes. A turn is short and ends when another training waits, so that
pipelines with a backlog take turns; the sensor requests the next one.
"""

from collections.abc import Callable, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Final

import dagster as dg

from modyn_dagster.assets.dagster_runs import BACKLOG_TAG, log_training, log_waits
from modyn_dagster.assets.metadata.stages import stage_events
from modyn_dagster.assets.specs import PipelineAssets, add_partitions, triggers_of
from modyn_dagster.assets.tracking.links import MlflowLinks
from modyn_dagster.resources.event_store import AssetEvent, keep_connections, show_at_once
from modyn_dagster.resources.run_classes import CLASS_TAG
from modyn_dagster.spec.base import seconds_of

if TYPE_CHECKING:
    from modyn_dagster.distributed.protocols import Pool
    from modyn_dagster.pipeline.platform import Platform
    from modyn_dagster.training import FastPath


#: A run takes further triggers for so long, and for at most this share of its pipeline's ``max_run_time``, which is a limit of
#: the whole Dagster run.
_TURN_SECONDS: Final = 60.0
_TURN_SHARE: Final = 0.1


def backlog_events(
    context: dg.AssetExecutionContext,
    assets: PipelineAssets,
    platform: "Platform",
    links: MlflowLinks,
    fast_path: "FastPath",
    pool: "Pool | None" = None,
) -> Iterator[AssetEvent]:
    """Train the next triggers of the pipeline's live run, if this run was requested by its sensor, and show their assets.

    Each trigger has its own partition and its own materializations, as if a run had been requested for it.
    """
    if context.run.tags.get(BACKLOG_TAG) != assets.name:
        return
    from modyn_dagster.pipeline.decide.backlog import train_backlog

    keep_connections(context.instance)
    turn = turn_of(context.instance, assets.pipeline.max_run_time)
    page = None
    progress = log_training(context.log.info)
    waits = log_waits(context.log.warning)
    for result in train_backlog(platform, assets.name, context.run.run_id, turn, progress, fast_path, waits, pool):
        if result.stage == "training_set":
            add_partitions(context.instance, triggers_of(assets.name), [result.partition_key])
            context.log.info(f"trigger {result.partition_key} is next: {result.context.trigger.reason}")
        if result.stage != "model":
            page = links.trigger(result.context)
        yield from show_at_once(context, list(stage_events(assets, result, page)))


def turn_of(instance: dg.DagsterInstance, max_run_time: str, clock: Callable[[], float] = monotonic) -> Callable[[], bool]:
    """Function that says whether a turn that begins now still lasts.

    Args:
        instance: its queue may hold a run that trains, for this pipeline or another one; then the turn is over.
        max_run_time: duration after which Dagster ends the whole run.
        clock: seconds.
    """
    end = clock() + min(_TURN_SECONDS, _TURN_SHARE * seconds_of(max_run_time))
    waiting = dg.RunsFilter(tags={CLASS_TAG: "training"}, statuses=[dg.DagsterRunStatus.QUEUED])
    return lambda: clock() < end and not instance.get_runs(waiting, limit=1)
