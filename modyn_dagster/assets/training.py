"""The assets ``<pipeline>/training_set`` and ``<pipeline>/model``: selection and training of a claimed trigger."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import dagster as dg

from modyn_dagster.assets.checks import check_outputs
from modyn_dagster.assets.dagster_runs import ATTEMPT_TAG, has_ended, log_training, log_waits, reserved_for
from modyn_dagster.assets.metadata.stages import OpEvent, stage_result
from modyn_dagster.assets.specs import PipelineAssets
from modyn_dagster.assets.tracking.links import MlflowLinks
from modyn_dagster.resources.fast_path import FastPathResource
from modyn_dagster.resources.mlflow import MlflowResource
from modyn_dagster.resources.platform import PlatformResource

if TYPE_CHECKING:
    from modyn_dagster.catalog.runs import RunRow
    from modyn_dagster.catalog.triggers import TriggerRow
    from modyn_dagster.pipeline.context import TriggerContext
    from modyn_dagster.pipeline.platform import Platform


T = TypeVar("T")


def patient(
    context: dg.AssetExecutionContext, platform: "Platform", work: Callable[[], T], *, again: Callable[[], T] | None = None
) -> T:
    """Result of a function, called again while its errors are transient, for ``MODYN_MAX_WAIT``; the run's log shows the waits.

    Args:
        context: of the op.
        platform: names the longest wait.
        work: called first.
        again: called after a pause, as a commit that was under way may have taken place; default: ``work``.
    """
    from modyn_dagster.pipeline.decide.waiting import patiently

    return patiently(platform.settings.max_wait, work, log_waits(context.log.warning), again=again)


def claimed(context: dg.AssetExecutionContext, platform: "Platform", pipeline: str) -> "TriggerContext":
    """The trigger of the run's partition, claimed for this run; every op of the run claims it, which is once.

    A run that a sensor asked for takes its own attempt and no later one. One that a person launched takes the current
    attempt, also when the run that held it has ended without a commit.

    Raises:
        LostClaim: another run works on it, or a later attempt is under way.
        RunError: the trigger failed for good, or was skipped.
        UnknownName: no decision made this partition.
    """
    from modyn_dagster.catalog.runs import get_run
    from modyn_dagster.catalog.triggers import find_trigger
    from modyn_dagster.pipeline.decide.attempts import claim_context

    with platform.transaction() as conn:
        trigger = find_trigger(conn, pipeline, context.partition_key)
        run = get_run(conn, trigger.run_id)
    attempt = context.run.tags.get(ATTEMPT_TAG)
    if attempt is not None:
        trigger = replace(trigger, attempt=int(attempt))
    else:
        trigger = _release_ended_holder(context, platform, run, trigger)
    return claim_context(platform, trigger, context.run.run_id)


def _release_ended_holder(
    context: dg.AssetExecutionContext, platform: "Platform", run: "RunRow", trigger: "TriggerRow"
) -> "TriggerRow":
    """Return the trigger, released from a run that holds it and has ended."""
    from modyn_dagster.pipeline.decide.attempts import give_up_attempt

    holder = trigger.dagster_run_id
    if trigger.state != "training" or holder in (None, context.run.run_id) or not has_ended(context.instance, str(holder)):
        return trigger
    return give_up_attempt(platform, run, trigger, f"Dagster run {holder} ended without a commit")[1]


def training_set_asset(assets: PipelineAssets) -> dg.AssetsDefinition:
    """Select the window of a trigger. Materializing it by hand selects again and must find the same bytes."""
    samples = dg.AssetDep(assets.samples_key(), partition_mapping=dg.AllPartitionMapping())

    @dg.multi_asset(**assets.of_trigger("training_set", samples))
    def training_set(
        context: dg.AssetExecutionContext, modyn: PlatformResource, modyn_mlflow: MlflowResource
    ) -> Iterator[OpEvent]:
        from modyn_dagster.pipeline.checks import require_passed
        from modyn_dagster.pipeline.decide.attempts import working_attempt
        from modyn_dagster.pipeline.stages.trigger_stages import training_set_stage

        platform = modyn.platform()
        work = patient(context, platform, lambda: claimed(context, platform, assets.name))
        with working_attempt(work), reserved_for(context, assets.pipeline, "training"):
            result = patient(
                context,
                platform,
                lambda: training_set_stage(work),
                again=lambda: training_set_stage(claimed(context, platform, assets.name)),
            )
            yield from stage_result(assets, result, MlflowLinks(context, modyn_mlflow, platform).trigger(work))
            require_passed(result.checks)
        yield from check_outputs("training_set", assets.key("training_set"))

    return training_set


def model_asset(assets: PipelineAssets) -> dg.AssetsDefinition:
    """Train the model of a trigger. Materializing it by hand trains again and must reach the same hash.

    Nothing is materialized, and nothing evaluated, for a trigger whose training set is empty.
    """

    @dg.multi_asset(**assets.of_trigger("model", assets.key("training_set")))
    def model(
        context: dg.AssetExecutionContext,
        modyn: PlatformResource,
        modyn_mlflow: MlflowResource,
        modyn_fast_path: FastPathResource,
    ) -> Iterator[OpEvent]:
        from modyn_dagster.pipeline.checks import require_passed
        from modyn_dagster.pipeline.decide.attempts import working_attempt
        from modyn_dagster.pipeline.stages.trigger_stages import model_stage, model_stage_again

        platform = modyn.platform()
        progress, reads = log_training(context.log.info), modyn_fast_path.settings()
        work = patient(context, platform, lambda: claimed(context, platform, assets.name))
        with working_attempt(work), reserved_for(context, assets.pipeline, "training"):
            result = patient(
                context,
                platform,
                lambda: model_stage(work, progress, reads),
                again=lambda: model_stage_again(work, lambda: claimed(context, platform, assets.name), progress, reads),
            )
        url = MlflowLinks(context, modyn_mlflow, platform).trigger(work)
        if result is not None:
            yield from stage_result(assets, result, url)
            require_passed(result.checks)
        yield from check_outputs("model", assets.key("model"))

    return model
