"""Taking a trigger for a Dagster run: one its sensor asked for, or one that a person launched."""

from dataclasses import replace
from typing import TYPE_CHECKING

import dagster as dg

from modyn_dagster.assets.dagster_runs import ATTEMPT_TAG, has_ended

if TYPE_CHECKING:
    from modyn_dagster.catalog.triggers import TriggerRow
    from modyn_dagster.pipeline.context import TriggerContext
    from modyn_dagster.pipeline.platform import Platform


def claimed(context: dg.AssetExecutionContext, platform: "Platform", pipeline: str) -> "TriggerContext":
    """The trigger of the run's partition, claimed for this run; every op of the run claims it, which is once.

    A run that a sensor asked for takes its own attempt and no later one. One that a person launched takes the current
    attempt, also when the run that held it has ended without a commit.

    Raises:
        LostClaim: another run works on it, or a later attempt is under way.
        RunError: the trigger failed for good, or was skipped.
        UnknownName: no decision made this partition.
    """
    from modyn_dagster.pipeline.attempts import claim_trigger
    from modyn_dagster.pipeline.context import context_of

    work = context_of(platform, pipeline, context.partition_key)
    attempt = context.run.tags.get(ATTEMPT_TAG)
    wanted = _free(context, work) if attempt is None else replace(work.trigger, attempt=int(attempt))
    return replace(work, trigger=claim_trigger(platform, wanted, context.run.run_id))


def _free(context: dg.AssetExecutionContext, work: "TriggerContext") -> "TriggerRow":
    """The trigger, taken from a run that holds it and is over."""
    from modyn_dagster.pipeline.attempts import give_up_attempt

    holder = work.trigger.dagster_run_id
    if work.trigger.state != "training" or holder in (None, context.run.run_id) or not has_ended(context.instance, str(holder)):
        return work.trigger
    return give_up_attempt(work.platform, work.run, work.trigger, f"Dagster run {holder} ended without a commit")
