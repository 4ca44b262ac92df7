"""What MLflow is to show of a pipeline run and of a trigger: from catalog rows to parameters, tags and metrics."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from modyn_dagster.catalog.decisions import DecisionRow
from modyn_dagster.catalog.evaluations import EvaluationRow
from modyn_dagster.catalog.models import ModelRow
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.training_sets import FillPoint, TrainingSetRow
from modyn_dagster.catalog.triggers import TriggerRow
from modyn_dagster.reporting.scores import CompositeSeries, Interval
from modyn_dagster.reporting.summary import RunSummary
from modyn_dagster.reporting.tracked_inputs import DataInput, stream_inputs, trigger_inputs
from modyn_dagster.reporting.tracked_points import (
    Series,
    decision_series,
    epoch_series,
    fill_series,
    interval_series,
    interval_tags,
    loss_series,
    milliseconds,
    utc_text,
)
from modyn_dagster.reporting.tracked_scores import composite_points, slice_series, slice_tags
from modyn_dagster.spec.pipeline import DISPLAY_FIELDS

#: What MLflow keeps of a parameter, its name and a tag.
_MOST_IN_KEY: Final = 250
_MOST_IN_PARAM: Final = 6000
_MOST_IN_TAG: Final = 8000
#: MLflow takes more, but not where a name could be read as a path.
_REFUSED_IN_KEY: Final = re.compile(r"[^\w\- ]", re.ASCII)
_RUN_STATUS: Final = {
    "active": "RUNNING",
    "waiting": "RUNNING",
    "stopping": "RUNNING",
    "stopped": "RUNNING",
    "finished": "FINISHED",
    "ended": "FINISHED",
}
_TRIGGER_STATUS: Final = {
    "pending": "SCHEDULED",
    "training": "RUNNING",
    "trained": "FINISHED",
    "skipped": "FINISHED",
    "failed": "FAILED",
}


@dataclass(frozen=True)
class Content:
    """All that one MLflow run shows. ``identity`` are the tags that find it again; times are in milliseconds since 1970.

    ``defaults`` are tags for a run that lacks them. ``numbers`` are whatever they are now; ``params`` and ``series`` can
    only be added to.
    """

    name: str
    identity: Mapping[str, str]
    status: str
    start: int
    end: int | None
    tags: Mapping[str, str]
    params: Mapping[str, str]
    defaults: Mapping[str, str] = field(default_factory=dict)
    series: Series = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    inputs: Sequence[DataInput] = ()


@dataclass(frozen=True)
class DagsterRun:
    """The Dagster run that did what is shown, as far as it is known, and its page."""

    id: str | None = None
    url: str | None = None


@dataclass(frozen=True)
class TriggerRecord:
    """What the catalog has about one trigger: ``cells`` of all samples, ``slices`` of parts of them.

    ``intervals`` are those of the whole run, in order of time.
    """

    run: RunRow
    trigger: TriggerRow
    training_set: TrainingSetRow | None
    model: ModelRow | None
    cells: Sequence[EvaluationRow]
    intervals: Sequence[Interval]
    seconds: Mapping[str, float]
    slices: Sequence[EvaluationRow] = ()


def run_content(
    run: RunRow,
    summary: RunSummary,
    intervals: Sequence[Interval],
    dagster: DagsterRun,
    decisions: Sequence[DecisionRow] = (),
    fills: Sequence[FillPoint] = (),
    composites: Mapping[str, CompositeSeries] = MappingProxyType({}),
) -> Content:
    """Of a pipeline run: its spec as parameters, cost and score as numbers, what ``decisions`` were taken from, how full
    its time-biased sample was, and the scores of its ``composites`` by metric.
    """
    spec = {name: value for name, value in run.spec.items() if name not in DISPLAY_FIELDS}
    settings = {"seed": run.seed, "threads": run.threads, "run": {"mode": run.mode, "name": run.name}}
    note = _note([run.title, str(run.spec.get("description") or "")], dagster.url)
    tags = {
        "modyn/pipeline": run.pipeline,
        "modyn/mode": run.mode,
        "modyn/state": run.state,
        "modyn/spec_hash": run.spec_hash,
        "dagster/run_id": dagster.id,
        "dagster/asset_key": f"{run.pipeline}/{'replay' if run.mode == 'replay' else 'model'}",
    }
    return Content(
        name=" ".join(filter(None, [run.mode, f"{run.id:06d}", run.name])),
        identity={"modyn/kind": "run", **_run_identity(run)},
        status=_RUN_STATUS[run.state],
        start=milliseconds(run.created_at),
        end=None if run.finished_at is None else milliseconds(run.finished_at),
        tags={**_tags(tags), **interval_tags(intervals), **(note if dagster.url else {})},
        params=flatten({**spec, **settings}),
        defaults=note,
        series={
            **decision_series(decisions),
            **fill_series(fills),
            **composite_points(composites, intervals, ended=run.state in ("finished", "ended")),
        },
        numbers=_summary_numbers(summary),
        inputs=stream_inputs(run),
    )


def trigger_content(record: TriggerRecord, *, parent: str, dagster: DagsterRun) -> Content:
    """Of a trigger: decision, training set, training, loss curve, seconds and scores. ``parent`` is the run's MLflow run."""
    run, trigger, model = record.run, record.trigger, record.model
    title = f"Trigger {trigger.ordinal} of {run.title}: {trigger.reason}"
    note = _note([title, _selected(record.training_set)], dagster.url)
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
        identity={"modyn/kind": "trigger", "modyn/trigger": trigger.partition_key, **_run_identity(run)},
        status=_TRIGGER_STATUS[trigger.state],
        start=milliseconds(trigger.created_at),
        end=None if trigger.finished_at is None else milliseconds(trigger.finished_at),
        tags={**_tags(tags), **interval_tags(record.intervals), **slice_tags(record.slices), **(note if dagster.url else {})},
        params=flatten(_trigger_params(record)),
        defaults=note,
        series={
            **({} if model is None else loss_series(model) | epoch_series(model)),
            **interval_series(record.cells, record.intervals),
            **slice_series(record.slices, record.intervals),
        },
        numbers=_trigger_numbers(record),
        inputs=trigger_inputs(run, record.training_set),
    )


def comparison_tags(dataset: str, dagster: DagsterRun) -> dict[str, str]:
    """Of the comparison of a dataset's pipelines: where it comes from."""
    tags = {"dagster/run_id": dagster.id, "dagster/asset_key": f"{dataset}/comparison"}
    return _tags(tags) | _note([f"Pipelines of {dataset} side by side"], dagster.url)


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as MLflow parameters with dotted names; what is not text is JSON.

    >>> flatten({"trigger": {"kind": "amount", "every": 5}, "features": ["a"]})
    {'trigger.kind': 'amount', 'trigger.every': '5', 'features': '["a"]'}
    """
    flat: dict[str, str] = {}
    for name, value in values.items():
        key = prefix + (_REFUSED_IN_KEY.sub("_", name) or "_")
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{key}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            flat[key[:_MOST_IN_KEY]] = text[:_MOST_IN_PARAM]
    return flat


def _run_identity(run: RunRow) -> dict[str, str]:
    # Ids begin again in another database, whose runs the same MLflow may show: the time of creation tells them apart.
    return {"modyn/run": str(run.id), "modyn/created": utc_text(run.created_at)}


def _trigger_params(record: TriggerRecord) -> dict[str, Any]:
    run, trigger, chosen, model = record.run, record.trigger, record.training_set, record.model
    params: dict[str, Any] = {
        "trigger": {"ordinal": trigger.ordinal, "key": trigger.key, "point": trigger.point, "reason": trigger.reason},
        "seed": run.seed,
        "threads": run.threads,
        "training": run.spec["training"],
        "selection": run.spec.get("selection", {}),
    }
    if chosen is not None:
        times = {"first_time": chosen.time_min, "last_time": chosen.time_max}
        window = {"after": chosen.after, "until": chosen.until}
        params["window"] = {**window, **{name: utc_text(time) for name, time in times.items() if time is not None}}
        params |= {"n_pool": chosen.n_pool, "n_samples": chosen.n_samples}
    if model is not None:
        params |= {"model_hash": model.hash, "previous_model_hash": model.previous_hash}
    return params


def _trigger_numbers(record: TriggerRecord) -> dict[str, float]:
    decision = {"trigger/score": record.trigger.score, "trigger/threshold": record.trigger.threshold}
    numbers = {name: value for name, value in decision.items() if value is not None and math.isfinite(value)}
    if record.training_set is not None and "fill" in record.training_set.details:
        numbers["sample/fill"] = float(record.training_set.details["fill"])
    return numbers | {f"seconds/{stage}": seconds for stage, seconds in record.seconds.items()}


def _summary_numbers(summary: RunSummary) -> dict[str, float]:
    numbers = {
        "triggers": float(summary.triggers.trained),
        "samples_trained_on": float(summary.samples_trained_on),
        "seconds/total": summary.total_seconds,
    }
    if summary.mean_active is not None:
        numbers[f"mean_active/{summary.metric}"] = summary.mean_active
    return numbers | {f"seconds/{stage}": seconds for stage, seconds in summary.seconds.items()}


def _selected(row: TrainingSetRow | None) -> str:
    if row is None:
        return ""
    span = f" between {utc_text(row.time_min)} and {utc_text(row.time_max)}" if row.time_min and row.time_max else ""
    return f"Trained on {row.n_samples:,} of {row.n_pool:,} samples{span}."


def _tags(tags: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value[:_MOST_IN_TAG] for name, value in tags.items() if value is not None}


def _note(parts: Sequence[str], url: str | None) -> dict[str, str]:
    """The description in MLflow's page. A later sync that does not know Dagster's page leaves the one that does."""
    link = f"[Dagster run]({url})" if url else ""
    return {"mlflow.note.content": "\n\n".join(filter(None, [*parts, link]))[:_MOST_IN_TAG]}
