"""The sensor ``freshness__<dataset>``: says when data stop arriving, and when they arrive again."""

import json

import dagster as dg

from modyn_dagster.assets.samples import freshness_evaluation
from modyn_dagster.assets.specs import DatasetAssets
from modyn_dagster.resources.platform import PlatformResource
from modyn_dagster.sensors.ticks import bounded_tick
from modyn_dagster.spec.base import seconds_of


def freshness_sensor(assets: DatasetAssets, maximum: str) -> dg.SensorDefinition:
    """On from the start: somebody asked for it in the dataset's file. The cursor is what was said last.

    It looks twenty times within the time allowed, but at most every ten seconds and at least every minute.
    """
    sensor = f"freshness__{assets.dataset.name}"

    @dg.sensor(
        name=sensor,
        minimum_interval_seconds=min(60, max(10, seconds_of(maximum) // 20)),
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Fails the check `fresh` of {assets.dataset.name} when no batch has arrived for {maximum}.",
    )
    def fresh(context: dg.SensorEvaluationContext, modyn: PlatformResource) -> dg.SensorResult | dg.SkipReason:
        return bounded_tick(sensor, lambda: _tick(context, modyn, assets))

    return fresh


def _tick(context: dg.SensorEvaluationContext, modyn: PlatformResource, assets: DatasetAssets) -> dg.SensorResult:
    from modyn_dagster.pipeline.checks import freshness

    found = freshness(modyn.platform(), assets.dataset.name)
    said = json.dumps(found.passed)
    # Once per change: a check that says every minute that nothing has changed would bury the one that matters.
    events = [freshness_evaluation(assets.key("samples"), found)] if said != context.cursor else []
    return dg.SensorResult(asset_events=events, skip_reason=None if events else found.description, cursor=said)
