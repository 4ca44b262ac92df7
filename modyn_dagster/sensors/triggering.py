"""The sensor ``triggering__<pipeline>``: decides, and asks for trainings and evaluations. It never trains or measures."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import dagster as dg

from modyn_dagster.assets.dagster_runs import (
    ATTEMPT_TAG,
    BACKLOG_TAG,
    PARTITION_TAG,
    TRIGGER_TAG,
    ended_runs,
    has_ended,
    unfinished_runs,
)
from modyn_dagster.assets.jobs import AssetJob
from modyn_dagster.assets.specs import PipelineAssets, triggers_of
from modyn_dagster.resources.platform import PlatformResource
from modyn_dagster.sensors.requests import (
    EvaluationCursor,
    evaluated_partitions,
    evaluation_request,
    measurement_request,
    partitions_to_add,
)
from modyn_dagster.sensors.ticks import bounded_tick

if TYPE_CHECKING:
    from modyn_dagster.catalog.triggers import TriggerRow
    from modyn_dagster.pipeline.decide.tick import Attempt, AttemptStatus, MissingMeasurement
    from modyn_dagster.pipeline.platform import Platform


def triggering_sensor(assets: PipelineAssets, jobs: Sequence[AssetJob]) -> dg.SensorDefinition:
    """Production of one pipeline; ``jobs`` are what it may ask for. Off until somebody switches it on."""
    sensor = f"triggering__{assets.name}"

    @dg.sensor(
        name=sensor,
        jobs=jobs,
        minimum_interval_seconds=assets.pipeline.sensor_interval,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"Production of {assets.name}: decides when to train, asks for it, and has models judged on new data.",
    )
    def triggering(context: dg.SensorEvaluationContext, modyn: PlatformResource) -> dg.SensorResult | dg.SkipReason:
        return bounded_tick(sensor, lambda: _tick(context, modyn.platform(), assets))

    return triggering


def _tick(context: dg.SensorEvaluationContext, platform: "Platform", assets: PipelineAssets) -> dg.SensorResult:
    from modyn_dagster.pipeline.decide.tick import Attempt, tick

    status = _attempt_status(context.instance)
    # Asked before the catalog: a run seen to have ended takes no trigger that is pending afterwards.
    takes_backlog = bool(unfinished_runs(context.instance, {BACKLOG_TAG: assets.name}))
    found = tick(platform, assets.name, status)
    mark = EvaluationCursor.parse(context.cursor)
    if found.train is not None:
        if takes_backlog or status(found.train) is Attempt.GOING:
            return dg.SensorResult(skip_reason=f"{found.message} (a run is under way)", cursor=mark.text())
        return _train(assets, found.train, mark)
    if found.measure is not None:
        return _measure(context, platform, assets, found.measure, found.message, mark)
    requests, partitions, message = [], [], found.message
    if found.evaluate and takes_backlog:
        # It judges its own models, and shows them; whatever else is due would wait for it.
        message = f"{message}; a run is under way"
    elif found.evaluate:
        request, mark, judged = evaluation_request(context.instance, platform, assets, found, mark)
        message = f"{message}; {judged}"
        if request is not None:
            requests, partitions = [request], evaluated_partitions(context.instance, assets, request)
    context.log.info(message)
    skip_reason = None if requests else message
    return dg.SensorResult(
        run_requests=requests, dynamic_partitions_requests=partitions, skip_reason=skip_reason, cursor=mark.text()
    )


def _measure(
    context: dg.SensorEvaluationContext,
    platform: "Platform",
    assets: PipelineAssets,
    missing: "MissingMeasurement",
    decided: str,
    mark: EvaluationCursor,
) -> dg.SensorResult:
    request, text = measurement_request(context.instance, assets, missing)
    message = f"{decided}; {text}"
    context.log.info(message)
    if request is None:
        return dg.SensorResult(skip_reason=message, cursor=mark.text())
    partitions = partitions_to_add(context.instance, platform, assets.dataset.name)
    return dg.SensorResult(run_requests=[request], dynamic_partitions_requests=partitions, cursor=mark.text())


def _train(assets: PipelineAssets, trigger: "TriggerRow", mark: EvaluationCursor) -> dg.SensorResult:
    key = trigger.partition_key
    request = dg.RunRequest(
        run_key=f"{assets.name}:{key}:{trigger.attempt}",
        job_name=f"train__{assets.name}",
        partition_key=key,
        tags={TRIGGER_TAG: key, ATTEMPT_TAG: str(trigger.attempt), BACKLOG_TAG: assets.name},
    )
    partition = triggers_of(assets.name).build_add_request([key])
    return dg.SensorResult(run_requests=[request], dynamic_partitions_requests=[partition], cursor=mark.text())


def _attempt_status(instance: dg.DagsterInstance) -> "AttemptStatus":
    from modyn_dagster.pipeline.decide.tick import Attempt

    def status(trigger: "TriggerRow") -> "Attempt":
        asked = ended_runs(instance, {TRIGGER_TAG: trigger.partition_key, ATTEMPT_TAG: str(trigger.attempt)})
        # Also a run that a person launched for the same trigger: it holds the claim.
        if asked is None or unfinished_runs(instance, {PARTITION_TAG: trigger.partition_key}):
            return Attempt.GOING
        # And one that took the trigger from the backlog, after its own.
        holder = trigger.dagster_run_id
        if holder is not None and not has_ended(instance, holder):
            return Attempt.GOING
        return Attempt.ENDED if asked else Attempt.NONE

    return status
