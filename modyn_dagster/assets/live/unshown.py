"""Triggers that are trained but not shown: a run was killed between the commit and its event, or they were taken over.

The catalog is the truth; the next evaluation of the pipeline makes up the events, and its sensor requests one where none is due.
"""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

import dagster as dg

from modyn_dagster.assets.metadata.stages import stage_events
from modyn_dagster.assets.specs import PipelineAssets, add_partitions, triggers_of
from modyn_dagster.resources.event_store import AssetEvent

if TYPE_CHECKING:
    from modyn_dagster.catalog.runs import RunRow
    from modyn_dagster.catalog.triggers import TriggerRow
    from modyn_dagster.pipeline.platform import Platform
    from modyn_dagster.pipeline.stages.trigger_stages import StageName


_STAGES: Final[tuple["StageName", ...]] = ("training_set", "model", "evaluation")


def unshown_triggers(
    instance: dg.DagsterInstance, platform: "Platform", assets: PipelineAssets, run: "RunRow"
) -> "list[TriggerRow]":
    """Trained triggers of a run without an evaluation in Dagster, in order: its event is the last of a trigger."""
    shown = instance.get_materialized_partitions(assets.key("evaluation"))
    return [trigger for trigger in _trained(platform, run) if trigger.partition_key not in shown]


def made_up_events(
    instance: dg.DagsterInstance, platform: "Platform", assets: PipelineAssets, run: "RunRow", judged: Collection[str]
) -> Iterator[AssetEvent]:
    """Events of trained triggers of a live run that Dagster does not show; not the evaluations of ``judged``."""
    from modyn_dagster.pipeline.context import context_of
    from modyn_dagster.pipeline.stages.trigger_stages import recorded_stages

    if run.mode != "live":
        return
    shown = {stage: instance.get_materialized_partitions(assets.key(stage)) for stage in _STAGES}
    shown["evaluation"] = shown["evaluation"].union(judged)
    trained = [trigger.partition_key for trigger in _trained(platform, run)]
    hidden = [key for key in trained if not all(key in shown[stage] for stage in _STAGES)]
    # Those of a replay that the live run took over have no partition yet.
    add_partitions(instance, triggers_of(assets.name), hidden)
    for key in hidden:
        for result in recorded_stages(context_of(platform, assets.name, key)):
            if key not in shown[result.stage]:
                yield from stage_events(assets, result, None)


def _trained(platform: "Platform", run: "RunRow") -> "list[TriggerRow]":
    from modyn_dagster.catalog.triggers import list_triggers

    with platform.transaction() as conn:
        return list_triggers(conn, run.id, ["trained"])
