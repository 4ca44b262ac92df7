"""Jobs for people, and for telling people: ``trigger_now__<pipeline>`` and ``notify__<pipeline>``."""

from datetime import datetime

import dagster as dg
from pydantic import Field

from modyn_dagster.assets.specs import PipelineAssets
from modyn_dagster.resources.platform import PlatformResource


class TriggerNowConfig(dg.Config):
    """Who wants it, and why."""

    note: str = Field("", description="Recorded with the trigger: `manual: <note>` is its reason.")


class NotifyConfig(dg.Config):
    """What is to be told."""

    since: str = Field(description="What happened at or after this moment, ISO 8601.")


def trigger_now_job(assets: PipelineAssets) -> dg.JobDefinition:
    """Train now: a trigger at the live run's cursor. Its sensor asks for the training."""
    pipeline = assets.name

    @dg.op(name=f"{pipeline}__trigger_now", description="Make a trigger of the live run, on everything decided about so far.")
    def trigger_now(context: dg.OpExecutionContext, config: TriggerNowConfig, modyn: PlatformResource) -> None:
        from modyn_dagster.pipeline.manual import trigger_now as make

        trigger = make(modyn.platform(), pipeline, config.note)
        context.log.info(f"trigger {trigger.partition_key}: {trigger.reason}; triggering__{pipeline} asks for its training")
        context.add_output_metadata({"trigger": trigger.partition_key, "trigger_key": trigger.key, "reason": trigger.reason})

    @dg.job(
        name=f"trigger_now__{pipeline}",
        description=f"Train {pipeline} now, on everything its live run has decided about; the policy goes on afterwards.",
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        trigger_now()

    return job


def notify_job(assets: PipelineAssets) -> dg.JobDefinition:
    """Tell the pipeline's hook what it has not been told. A process of its own: a hook may hang, or end it."""
    pipeline = assets.name

    @dg.op(name=f"{pipeline}__notify", description="Call the pipeline's hook with every event it has not been told.")
    def notify(context: dg.OpExecutionContext, config: NotifyConfig, modyn: PlatformResource) -> None:
        from modyn_dagster.pipeline.notify import tell

        told = list(tell(modyn.platform(), pipeline, datetime.fromisoformat(config.since)))
        for each in told:
            if each.error is None:
                context.log.info(f"told: {each.event.text}")
            else:
                ending = "given up" if each.last else "it is tried again"
                context.log.error(f"the hook failed, {ending}: {each.error} (event: {each.event.text})")
        context.add_output_metadata({"told": sum(each.error is None for each in told), "events": len(told)})

    @dg.job(
        name=f"notify__{pipeline}",
        description=f"Tell the hook of {pipeline} of triggers, failed trainings and bad scores.",
        executor_def=dg.in_process_executor,
        # Dagster's run monitoring ends a hook that hangs.
        tags={"dagster/max_runtime": "600"},
    )
    def job() -> None:
        notify()

    return job
