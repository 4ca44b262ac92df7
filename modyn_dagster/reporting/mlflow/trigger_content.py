"""MLflow content of a trigger: rows of the catalog as parameters, tags and metrics."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.results.evaluations import EvaluationRow, list_evaluations, list_intervals
from modyn_dagster.catalog.results.models import ModelRow, find_model
from modyn_dagster.catalog.results.training_sets import TrainingSetRow, find_training_set
from modyn_dagster.catalog.runs import RunRow, get_run
from modyn_dagster.catalog.timings import seconds_by_stage
from modyn_dagster.catalog.triggers import TriggerRow, get_trigger
from modyn_dagster.reporting.mlflow.content import (
    Content,
    DagsterRun,
    description,
    flatten,
    known_tags,
    run_identity,
    trigger_inputs,
)
from modyn_dagster.reporting.mlflow.series import (
    epoch_series,
    interval_series,
    loss_series,
    slice_series,
    slice_tags,
    system_series,
)
from modyn_dagster.reporting.mlflow.stream_time import StreamTime, interval_tags, milliseconds, utc_text
from modyn_dagster.reporting.scores import Interval

#: Counts of a selection among a training set's details.
_SELECTED: Final = ("n_unlabelled", "n_compared", "n_uniform")
_TRIGGER_STATUS: Final = {
    "pending": "SCHEDULED",
    "training": "RUNNING",
    "trained": "FINISHED",
    "skipped": "FINISHED",
    "failed": "FAILED",
}


@dataclass(frozen=True)
class TriggerRecord:
    """Catalog rows of one trigger.

    Attributes:
        run, trigger, training_set, model: rows of the trigger.
        cells: scores on all samples.
        intervals: of the whole run, in order of time.
        seconds: wall seconds by stage.
        slices: scores on parts of the samples.
    """

    run: RunRow
    trigger: TriggerRow
    training_set: TrainingSetRow | None
    model: ModelRow | None
    cells: Sequence[EvaluationRow]
    intervals: Sequence[Interval]
    seconds: Mapping[str, float]
    slices: Sequence[EvaluationRow] = ()


def trigger_content(record: TriggerRecord, *, parent: str, dagster: DagsterRun) -> Content:
    """Content of a trigger: decision, training set, training, loss curve, seconds and scores; ``parent`` is an MLflow run id."""
    run, trigger, model = record.run, record.trigger, record.model
    title = f"Trigger {trigger.ordinal} of {run.title}: {trigger.reason}"
    time = StreamTime.of_run(run, record.intervals)
    note = description([title, _selected(record.training_set)], dagster.url)
    tags = {
        "mlflow.parentRunId": parent,
        "modyn/pipeline": run.pipeline,
        "modyn/state": trigger.state,
        "modyn/attempt": str(trigger.attempt),
        "modyn/error": trigger.error or "",
        "modyn/model": None if model is None else model.hash,
        "dagster/run_id": dagster.id or trigger.dagster_run_id,
        "dagster/partition": trigger.partition_key,
        "dagster/asset_key": f"{run.pipeline}/model",
    }
    return Content(
        name=trigger.partition_key,
        identity={"modyn/kind": "trigger", "modyn/trigger": trigger.partition_key, **run_identity(run)},
        status=_TRIGGER_STATUS[trigger.state],
        start=milliseconds(trigger.created_at),
        end=None if trigger.finished_at is None else milliseconds(trigger.finished_at),
        tags={
            **known_tags(tags),
            **interval_tags(record.intervals),
            **slice_tags(record.slices),
            **(note if dagster.url else {}),
        },
        params=flatten(_trigger_params(record)),
        defaults=note,
        series={
            **({} if model is None else loss_series(model) | epoch_series(model) | system_series(model)),
            **interval_series(record.cells, time),
            **slice_series(record.slices, time),
        },
        numbers=_trigger_numbers(record),
        inputs=trigger_inputs(run, record.training_set),
    )


def _trigger_params(record: TriggerRecord) -> dict[str, Any]:
    run, trigger, training_set, model = record.run, record.trigger, record.training_set, record.model
    params: dict[str, Any] = {
        "trigger": {"ordinal": trigger.ordinal, "key": trigger.key, "point": trigger.point, "reason": trigger.reason},
        "seed": run.seed,
        "threads": run.threads,
        "training": run.spec["training"],
        "selection": run.spec.get("selection", {}),
    }
    if training_set is not None:
        times = {"first_time": training_set.time_min, "last_time": training_set.time_max}
        window = {"after": training_set.after, "until": training_set.until}
        params["window"] = {**window, **{name: utc_text(time) for name, time in times.items() if time is not None}}
        params |= {"n_pool": training_set.n_pool, "n_samples": training_set.n_samples}
        params |= {name: training_set.details[name] for name in _SELECTED if name in training_set.details}
        if (own := training_set.details.get("own_strategy")) is not None:
            params |= {"chosen_by": own["path"], "chosen_by_code": own["code"], "certified": own["certified"]}
    if model is not None:
        params |= {"model_hash": model.hash, "previous_model_hash": model.previous_hash}
    return params


def _trigger_numbers(record: TriggerRecord) -> dict[str, float]:
    decision = {"trigger/score": record.trigger.score, "trigger/threshold": record.trigger.threshold}
    numbers = {name: value for name, value in decision.items() if value is not None and math.isfinite(value)}
    if record.training_set is not None and "fill" in record.training_set.details:
        numbers["sample/fill"] = float(record.training_set.details["fill"])
    return numbers | {f"seconds/{stage}": seconds for stage, seconds in record.seconds.items()}


def _selected(row: TrainingSetRow | None) -> str:
    if row is None:
        return ""
    span = f" between {utc_text(row.time_min)} and {utc_text(row.time_max)}" if row.time_min and row.time_max else ""
    return f"Trained on {row.n_samples:,} of {row.n_pool:,} samples{span}."


def read_trigger(engine: sa.Engine, run_id: int, trigger_id: int) -> TriggerRecord:
    """Read the catalog rows of a trigger."""
    with transaction(engine) as conn:
        cells = list_evaluations(conn, run_id, trigger_id, subsets=True)
        return TriggerRecord(
            run=get_run(conn, run_id),
            trigger=get_trigger(conn, trigger_id),
            training_set=find_training_set(conn, trigger_id),
            model=find_model(conn, trigger_id),
            cells=[cell for cell in cells if cell.subset == ""],
            intervals=list_intervals(conn, run_id),
            seconds=seconds_by_stage(conn, run_id, trigger_id),
            slices=[cell for cell in cells if cell.subset != ""],
        )
