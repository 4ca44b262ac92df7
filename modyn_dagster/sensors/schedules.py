"""The schedule of the job ``retention``."""

from collections.abc import Iterable

import dagster as dg

from modyn_dagster.assets.jobs import retention
from modyn_dagster.spec.operation import Retention
from modyn_dagster.spec.pipeline import PipelineSpec


def retention_schedule(pipelines: Iterable[PipelineSpec]) -> dg.ScheduleDefinition:
    """Nightly, before the model store is cleaned up; on from the start where a pipeline asks for retention."""
    is_wanted = any(pipeline.retention != Retention() for pipeline in pipelines)
    return dg.ScheduleDefinition(
        name="retention_nightly",
        job=retention,
        cron_schedule="30 3 * * *",
        default_status=dg.DefaultScheduleStatus.RUNNING if is_wanted else dg.DefaultScheduleStatus.STOPPED,
        description="Apply every pipeline's `retention` every night.",
    )
