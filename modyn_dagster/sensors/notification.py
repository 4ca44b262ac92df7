"""The sensor ``notifying__<pipeline>``: asks for a run that tells the pipeline's channels what they have not been told."""

from datetime import UTC, datetime
from typing import Final

import dagster as dg

from modyn_dagster.assets.dagster_runs import NOTIFY_TAG, ended_runs
from modyn_dagster.assets.specs import PipelineAssets
from modyn_dagster.pipeline.operate.notification.since import Since, parse_since, since_text
from modyn_dagster.resources.platform import PlatformResource
from modyn_dagster.sensors.ticks import bounded_tick

_NOTHING: Final = "nothing to tell"


def notifying_sensor(assets: PipelineAssets, job: dg.JobDefinition) -> dg.SensorDefinition:
    """On from the start: somebody asked for it in the pipeline's file. What happened before its first tick is not told.

    Apart from the triggering sensor, so that nothing a hook does can hold up a decision. The cursor is the time of the first tick
    of each channel: one that is added later is not told what happened before.
    """
    sensor = f"notifying__{assets.name}"

    @dg.sensor(
        name=sensor,
        job=job,
        minimum_interval_seconds=assets.pipeline.sensor_interval,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Has the channels of {assets.name} told of triggers, failed trainings and bad scores.",
    )
    def notifying(context: dg.SensorEvaluationContext, modyn: PlatformResource) -> dg.SensorResult | dg.SkipReason:
        return bounded_tick(sensor, lambda: _tick(context, modyn, assets))

    return notifying


def _tick(context: dg.SensorEvaluationContext, modyn: PlatformResource, assets: PipelineAssets) -> dg.SensorResult:
    now = datetime.now(UTC)
    known: Since = {}
    if context.cursor is not None:
        # A single time is from before there were other channels than the hook.
        known = parse_since(context.cursor, ["hook"])
    channels = [] if assets.pipeline.notify is None else assets.pipeline.notify.channels
    since = {channel: known.get(channel, now) for channel in channels}
    cursor = since_text(since)
    if not known:
        return dg.SensorResult(skip_reason=f"what happens from now on is told ({now.isoformat()})", cursor=cursor)
    # Only the newest counts: each was asked for after the one before it had ended.
    last = ended_runs(context.instance, {NOTIFY_TAG: assets.name}, limit=1)
    if last is None:
        return dg.SensorResult(skip_reason="the channels are being told", cursor=cursor)
    from modyn_dagster.pipeline.operate.notification.delivery import undelivered_events

    due = undelivered_events(modyn.platform(), assets.name, since)
    if not due:
        return dg.SensorResult(skip_reason=_NOTHING, cursor=cursor)
    # Named after the run before it: asked for once while that was the last one, whatever became of it.
    request = dg.RunRequest(
        run_key=f"{assets.name}:notify:{last[0].dagster_run.run_id if last else 'first'}",
        run_config={"ops": {f"{assets.name}__notify": {"config": {"since": cursor}}}},
        tags={NOTIFY_TAG: assets.name},
    )
    return dg.SensorResult(run_requests=[request], cursor=cursor)
