"""Dagster runs: the tags that find them again, their states, and progress in their logs."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Final

import dagster as dg

from modyn_dagster.resources.run_classes import CLASS_TAG, STAGES, RunClassName, share_of
from modyn_dagster.spec.pipeline import PipelineSpec

if TYPE_CHECKING:
    from modyn_dagster.progress import ProgressCallback
    from modyn_dagster.training import TrainingProgress


#: Partition key of the trigger a run trains, and which attempt of it.
TRIGGER_TAG: Final = "modyn/trigger"
ATTEMPT_TAG: Final = "modyn/attempt"
#: Pipeline whose next triggers a run trains after its own; only such runs do.
BACKLOG_TAG: Final = "modyn/backlog"
#: Pipeline whose models a run judges on new data.
EVALUATION_TAG: Final = "modyn/evaluation"
#: Set on a run that failed with an error which every attempt would meet.
PERMANENT_TAG: Final = "modyn/permanent"
#: Pipeline that a run measures for, from which point on and with which model.
MEASUREMENT_TAG: Final = "modyn/measurement"
POINT_TAG: Final = "modyn/point"
MODEL_TAG: Final = "modyn/model"
#: Pipeline whose hook a run tells what happened.
NOTIFY_TAG: Final = "modyn/notify"
#: Dataset, and partition key of the batch that a run ingests, or first and last ordinal (``0-99``) of several.
DATASET_TAG: Final = "modyn/dataset"
BATCH_TAG: Final = "modyn/batch"
STRETCH_TAG: Final = "modyn/batches"
#: Dataset of a run that ingests a label batch.
LABELS_TAG: Final = "modyn/labels"
#: Dagster's own tags for the partition a run is about, and for the request of a sensor that it answers.
PARTITION_TAG: Final = "dagster/partition"
RUN_KEY_TAG: Final = "dagster/run_key"

_ENDED: Final = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_GOING: Final = [status for status in dg.DagsterRunStatus if status not in _ENDED]


def unfinished_runs(instance: dg.DagsterInstance, tags: Mapping[str, str]) -> Sequence[dg.DagsterRun]:
    """Runs with these tags that are queued, starting, running or being stopped."""
    return instance.get_runs(dg.RunsFilter(tags=dict(tags), statuses=_GOING))


def ended_runs(instance: dg.DagsterInstance, tags: Mapping[str, str], limit: int | None = None) -> Sequence[dg.RunRecord] | None:
    """Runs with these tags, or the newest ``limit`` of them, newest first; None while one of them is not over.

    One query: between two of them another daemon may launch a run, which would look like one that has ended.
    """
    records = instance.get_run_records(dg.RunsFilter(tags=dict(tags)), limit=limit)
    return records if all(record.dagster_run.status in _ENDED for record in records) else None


def has_ended(instance: dg.DagsterInstance, run_id: str) -> bool:
    """True if a run is over, or unknown to this instance."""
    run = instance.get_run_by_id(run_id)
    return run is None or run.status in _ENDED


#: A line of the log is a row in Dagster's database.
_SECONDS_BETWEEN: Final = 10.0


def reserved_for(context: dg.AssetExecutionContext, pipeline: PipelineSpec, name: RunClassName) -> AbstractContextManager[None]:
    """Keep what ``resources`` of a pipeline name for a run, waiting for room first; the run's log shows the wait.

    Args:
        context: of the op.
        pipeline: the spec.
        name: class of the op; the run's own class counts where it has one, as an evaluation may end a training.
    """
    from modyn_dagster.distributed.reservation import reserved

    stages = STAGES.get(context.run.tags.get(CLASS_TAG, name), STAGES[name])
    work = f"run {context.run.run_id[:8]} of {pipeline.name}"
    return reserved(share_of(stages, pipeline), work, log_waits(context.log.warning))


def log_counts(say: Callable[[str], object], what: str, *, clock: Callable[[], float] = monotonic) -> Callable[[int, int], None]:
    """A callback for what counts, that says something every ten seconds, and nothing of what ends sooner."""
    told = clock()

    def report(done: int, total: int) -> None:
        nonlocal told
        if (now := clock()) - told >= _SECONDS_BETWEEN:
            say(f"{what}: {done} of {total}")
            told = now

    return report


def log_waits(say: Callable[[str], object]) -> Callable[[str], None]:
    """A callback for lines about waits. A line that the log cannot take is left out: the database it is in may be down."""

    def report(line: str) -> None:
        with suppress(Exception):
            say(line)

    return report


def log_training(say: Callable[[str], object], *, clock: Callable[[], float] = monotonic) -> "ProgressCallback":
    """A progress callback for ``train`` that says something every ten seconds, and nothing of a short training."""
    from modyn_dagster.progress import throttled

    def report(progress: "TrainingProgress") -> None:
        done = progress.step / progress.n_steps
        say(f"epoch {progress.epoch} of {progress.n_epochs}, {done:.0%} of all steps, loss {progress.loss:.6g}")

    return throttled(report, _SECONDS_BETWEEN, ending=False, clock=clock)
