"""When a decision needs a measurement that is not there: one run at a time, asked for again after a growing pause."""

import time
from typing import TYPE_CHECKING, Final

import dagster as dg

from modyn_dagster.assets.dagster_runs import MEASUREMENT_TAG, MODEL_TAG, POINT_TAG, ended_runs, going_runs
from modyn_dagster.assets.partitions import batches_of, unknown_partitions
from modyn_dagster.assets.specs import PipelineAssets

if TYPE_CHECKING:
    from modyn_dagster.pipeline.live import Unknown
    from modyn_dagster.pipeline.platform import Platform

_LONGEST_PAUSE: Final = 3600.0


def measurement_request(
    instance: dg.DagsterInstance, assets: PipelineAssets, unknown: "Unknown"
) -> tuple[dg.RunRequest | None, str]:
    """The run to ask for, and a line for the tick's log.

    A run that ended and left the point unmeasured was killed, or met something that passes: another attempt is asked for,
    without end, each time after twice the pause, up to an hour. Whatever it did measure is kept, and the next point it
    stopped at is a first attempt again.
    """
    point = f"{unknown.run_id}:{unknown.point}"
    tags = {MEASUREMENT_TAG: assets.name, POINT_TAG: point, MODEL_TAG: unknown.model_hash}
    ended = ended_runs(instance, tags)
    if ended is None or going_runs(instance, {MEASUREMENT_TAG: assets.name}):
        return None, "a measurement is under way"
    if ended:
        pause = min(_LONGEST_PAUSE, assets.pipeline.sensor_interval * 2.0 ** (len(ended) - 1))
        left = (ended[0].end_time or 0) + pause - time.time()
        if left > 0:
            text = f"measuring at key {unknown.point} failed {len(ended)} times, see the runs of measure__{assets.name}"
            return None, f"{text}; again in {left:.0f} s"
    attempt = len(ended) + 1
    request = dg.RunRequest(
        run_key=f"{assets.name}:measurement:{point}:{unknown.model_hash}:{attempt}",
        job_name=f"measure__{assets.name}",
        partition_key=unknown.batch,
        tags=tags,
    )
    return request, f"measuring is asked for, attempt {attempt}"


def partitions_to_add(instance: dg.DagsterInstance, platform: "Platform", dataset: str) -> list[dg.AddDynamicPartitionsRequest]:
    """Partitions of batches that the command line has ingested and Dagster has not heard of, in order."""
    from modyn_dagster.catalog.batches import list_batches
    from modyn_dagster.catalog.datasets import get_dataset

    partitions = batches_of(dataset)
    with platform.transaction() as conn:
        batches = list_batches(conn, get_dataset(conn, dataset).id)
    fresh = unknown_partitions(instance, partitions, [batch.partition_key for batch in batches])
    return [partitions.build_add_request(fresh)] if fresh else []
