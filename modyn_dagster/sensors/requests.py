"""Run requests of the triggering sensor: evaluations of models on new data, and measurements that a decision needs.

One run covers all models that are due; a measurement is requested one run at a time. Failed runs are requested again.
"""

import json
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final, Self

import dagster as dg

from modyn_dagster.assets.dagster_runs import (
    EVALUATION_TAG,
    MEASUREMENT_TAG,
    MODEL_TAG,
    PERMANENT_TAG,
    POINT_TAG,
    RUN_KEY_TAG,
    ended_runs,
    unfinished_runs,
)
from modyn_dagster.assets.live.unshown import unshown_triggers
from modyn_dagster.assets.promotion.shown import unshown_champion
from modyn_dagster.assets.specs import PipelineAssets, batches_of, triggers_of, unknown_partitions
from modyn_dagster.backoff import growing_pause
from modyn_dagster.values.digest import bytes_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modyn_dagster.catalog.runs import RunRow
    from modyn_dagster.catalog.triggers import TriggerRow
    from modyn_dagster.pipeline.decide.tick import MissingMeasurement, Tick
    from modyn_dagster.pipeline.platform import Platform


#: Of a tick, which may have decided for some seconds already.
_LOOK_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class EvaluationCursor:
    """Cursor of the evaluation requests, kept by the sensor between ticks.

    Attributes:
        settled: the run, as far as it, deletions and labels had come, when nothing was left to judge; saves looking again.
        asked: what was asked for last, and
        attempt: how often.
        looking: what ``settled`` is going to be, while the look at all models takes several ticks, and
        looked: how many of them need nothing.
    """

    settled: str = ""
    asked: str = ""
    attempt: int = 0
    looking: str = ""
    looked: int = 0

    @classmethod
    def parse(cls, cursor: str | None) -> Self:
        """From the cursor's text; an absent one remembers nothing."""
        return cls(**json.loads(cursor)) if cursor else cls()

    def text(self) -> str:
        """For the cursor, where people see it: what is empty is left out."""
        return json.dumps({name: value for name, value in asdict(self).items() if value})


def evaluation_request(
    instance: dg.DagsterInstance, platform: "Platform", assets: PipelineAssets, found: "Tick", mark: EvaluationCursor
) -> tuple[dg.RunRequest | None, EvaluationCursor, str]:
    """The run to ask for, what to remember, and a line for the tick's log.

    What was asked for and failed is asked for again, as often as the pipeline's ``max_attempts``, but not after an error that
    every attempt would meet; then only when there is something else to judge.
    """
    run = found.run
    changes = _changes(platform, run)
    here = f"{run.id}:{run.epoch}:{changes}"
    if mark.settled == here and not found.looks:
        return None, mark, "nothing new to judge"
    if unfinished_runs(instance, {EVALUATION_TAG: assets.name}):
        return None, mark, "an evaluation is under way"
    from modyn_dagster.pipeline.stages.evaluation.pending_evaluations import MODELS_AT_ONCE, scan_pending

    begin = mark.looked if mark.looking == here else 0
    scan = scan_pending(platform, run, begin, _LOOK_SECONDS)
    due = scan.due
    if not due and not scan.complete:
        return None, replace(mark, looking=here, looked=scan.looked), f"{scan.looked} models are judged, the next tick looks on"
    # Nothing to judge, but a kill may have swallowed the events of models: judging again shows them, and computes nothing.
    due = due or unshown_triggers(instance, platform, assets, run)[:MODELS_AT_ONCE]
    unshown = "" if due else unshown_champion(instance, platform, assets, run)
    if not due and (found.looks or unshown):
        due = _newest_trained(platform, run)
    if not due:
        return None, EvaluationCursor(settled=here), "every model is judged"
    wanted = _due_name(run, changes + unshown, due)
    attempt = mark.attempt + 1 if mark.asked == wanted else 1
    if attempt > 1 and (reason := _given_up(instance, assets, wanted, mark.attempt)) is not None:
        text = f"judging {len(due)} models failed {reason}, see the runs of evaluate__{assets.name}"
        return None, mark, f"{text}; new data or a run launched by hand tries again"
    request = _evaluation_run(assets, due, _run_key(assets, wanted, attempt))
    mark = EvaluationCursor(asked=wanted, attempt=attempt, looking=here, looked=begin)
    return request, mark, f"{len(due)} models to judge, attempt {attempt}"


def evaluated_partitions(
    instance: dg.DagsterInstance, assets: PipelineAssets, request: dg.RunRequest
) -> list[dg.AddDynamicPartitionsRequest]:
    """Partitions of the triggers of an evaluation that Dagster does not know: those that a live run took over from a replay."""
    partitions = triggers_of(assets.name)
    keys = request.run_config["ops"][assets.op("evaluation")]["config"]["triggers"]
    fresh = unknown_partitions(instance, partitions, keys)
    return [partitions.build_add_request(fresh)] if fresh else []


def _given_up(instance: dg.DagsterInstance, assets: PipelineAssets, wanted: str, attempts: int) -> str | None:
    """Reason why no further attempt is asked for; None where one is."""
    last = {RUN_KEY_TAG: _run_key(assets, wanted, attempts), PERMANENT_TAG: "true"}
    if ended_runs(instance, last, limit=1):
        return "with an error that every attempt would meet"
    return f"{attempts} times" if attempts >= assets.pipeline.max_attempts else None


def _run_key(assets: PipelineAssets, wanted: str, attempt: int) -> str:
    return f"{assets.name}:evaluation:{wanted}:{attempt}"


def _newest_trained(platform: "Platform", run: "RunRow") -> "list[TriggerRow]":
    """The newest trigger with a model: judging it again computes nothing; then the gate looks, and champions are shown."""
    from modyn_dagster.catalog.triggers import list_triggers

    with platform.transaction() as conn:
        return list_triggers(conn, run.id, ["trained"])[-1:]


def _changes(platform: "Platform", run: "RunRow") -> str:
    """Version of what changes scores without new samples: deletions, and labels that arrived later."""
    from modyn_dagster.catalog.deletions import deletion_stamp
    from modyn_dagster.catalog.labels.label_files import label_files_version

    with platform.transaction() as conn:
        labels = label_files_version(conn, run.dataset_id)
        return f"{deletion_stamp(conn, run.dataset_id)}" + (f".{labels[:12]}" if labels else "")


def _due_name(run: "RunRow", changes: str, due: "Sequence[TriggerRow]") -> str:
    """Short name of what is due, another one whenever that changes."""
    keys = ",".join(trigger.partition_key for trigger in due)
    return f"{run.id}:{run.last_ordinal}:{changes}:{bytes_digest(keys.encode(), 8)}"


def _evaluation_run(assets: PipelineAssets, due: "Sequence[TriggerRow]", run_key: str) -> dg.RunRequest:
    keys = [trigger.partition_key for trigger in due]
    return dg.RunRequest(
        run_key=run_key,
        job_name=f"evaluate__{assets.name}",
        # Dagster wants one partition of a run on partitioned assets; the configuration names them all.
        partition_key=keys[-1],
        run_config={"ops": {assets.op("evaluation"): {"config": {"triggers": keys}}}},
        tags={EVALUATION_TAG: assets.name},
    )


_LONGEST_PAUSE: Final = 3600.0


def measurement_request(
    instance: dg.DagsterInstance, assets: PipelineAssets, missing: "MissingMeasurement"
) -> tuple[dg.RunRequest | None, str]:
    """The run to ask for, and a line for the tick's log.

    A run that ended and left the point unmeasured was killed, or met something that passes: another attempt is asked for,
    without end, each time after twice the pause, up to an hour. Whatever it did measure is kept, and the next point it
    stopped at is a first attempt again.
    """
    point = f"{missing.run_id}:{missing.point}"
    tags = {MEASUREMENT_TAG: assets.name, POINT_TAG: point, MODEL_TAG: missing.model_hash}
    ended = ended_runs(instance, tags)
    if ended is None or unfinished_runs(instance, {MEASUREMENT_TAG: assets.name}):
        return None, "a measurement is under way"
    if ended:
        pause = growing_pause(assets.pipeline.sensor_interval, len(ended), _LONGEST_PAUSE)
        left = (ended[0].end_time or 0) + pause - time.time()
        if left > 0:
            text = f"measuring at key {missing.point} failed {len(ended)} times, see the runs of measure__{assets.name}"
            return None, f"{text}; again in {left:.0f} s"
    attempt = len(ended) + 1
    request = dg.RunRequest(
        run_key=f"{assets.name}:measurement:{point}:{missing.model_hash}:{attempt}",
        job_name=f"measure__{assets.name}",
        partition_key=missing.batch,
        tags=tags,
    )
    return request, f"measuring is asked for, attempt {attempt}"


def partitions_to_add(instance: dg.DagsterInstance, platform: "Platform", dataset: str) -> list[dg.AddDynamicPartitionsRequest]:
    """Partitions of batches that the command line has ingested and Dagster has not heard of, in order."""
    from modyn_dagster.catalog.batches import partition_keys
    from modyn_dagster.catalog.datasets import get_dataset

    partitions = batches_of(dataset)
    with platform.transaction() as conn:
        keys = partition_keys(conn, get_dataset(conn, dataset).id)
    fresh = unknown_partitions(instance, partitions, keys)
    return [partitions.build_add_request(fresh)] if fresh else []
