"""Content of one MLflow run: names, parameters and tags within MLflow's limits, and dataset inputs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from modyn_dagster.catalog.results.training_sets import TrainingSetRow
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.reporting.mlflow.series import MOST_IN_NAME, Series, digest_of, mlflow_name
from modyn_dagster.reporting.mlflow.stream_time import utc_text
from modyn_dagster.reporting.scores import spec_of

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run


#: Characters that MLflow stores of a digest.
_MOST_IN_DIGEST: Final = 36


@dataclass(frozen=True, slots=True)
class DataInput:
    """A dataset of one run.

    Attributes:
        name: of the dataset.
        digest: of its content.
        context: its purpose: stream, training or evaluation.
        source: its location.
        profile: its size and times.
    """

    name: str
    digest: str
    context: str
    source: Mapping[str, Any]
    profile: Mapping[str, Any]


def stream_inputs(run: RunRow) -> tuple[DataInput, ...]:
    """Inputs of a pipeline run: its stream and its evaluation data."""
    dataset = str(run.spec["dataset"])
    stream = DataInput(dataset, digest_of(dataset), "stream", {"uri": f"batches/{dataset}"}, {})
    return stream, _evaluation_input(run)


def trigger_inputs(run: RunRow, training_set: TrainingSetRow | None) -> tuple[DataInput, ...]:
    """Inputs of a trigger: its training set, if it has one, and its evaluation data."""
    if training_set is None:
        return (_evaluation_input(run),)
    times = {"first_time": training_set.time_min, "last_time": training_set.time_max}
    profile: dict[str, Any] = {"num_rows": training_set.n_samples, "window_samples": training_set.n_pool}
    profile |= {name: utc_text(time) for name, time in times.items() if time is not None}
    source = {"uri": training_set.path, "after": training_set.after, "until": training_set.until}
    name = f"{run.spec['dataset']} training set"
    return DataInput(name, training_set.checksum[:_MOST_IN_DIGEST], "training", source, profile), _evaluation_input(run)


def log_missing_inputs(client: MlflowClient, run: Run, inputs: Sequence[DataInput]) -> None:
    """Add the inputs that a run in MLflow lacks."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    present = {(entry.dataset.name, entry.dataset.digest) for entry in run.inputs.dataset_inputs} if run.inputs else set()
    missing = [
        DatasetInput(
            Dataset(data.name, data.digest, "local", json.dumps(dict(data.source)), profile=json.dumps(dict(data.profile))),
            [InputTag("mlflow.data.context", data.context)],
        )
        for data in inputs
        if (data.name, data.digest) not in present
    ]
    if missing:
        client.log_inputs(run.info.run_id, missing)


def _evaluation_input(run: RunRow) -> DataInput:
    data = spec_of(run).evaluation.data.model_dump(mode="json")
    dataset = str(data.get("dataset") or run.spec["dataset"])
    name = f"{dataset} {data['kind']}"
    return DataInput(name, digest_of([dataset, data]), "evaluation", {"uri": f"batches/{dataset}", **data}, {})


#: Characters that MLflow stores of a parameter and a tag.
_MOST_IN_PARAM: Final = 6000
_MOST_IN_TAG: Final = 8000


@dataclass(frozen=True)
class Content:
    """Content of one MLflow run.

    Attributes:
        name: of the run.
        identity: tags that identify the run.
        status: MLflow's word for the state.
        start, end: in milliseconds since 1970.
        tags: overwrite those of the run.
        params: cannot be changed once sent.
        defaults: tags for a run that lacks them.
        series: points by metric; points can only be added.
        numbers: current values by metric.
        inputs: datasets.
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
    """Id and page of the Dagster run that did the work, if known."""

    id: str | None = None
    url: str | None = None


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as MLflow parameters with dotted names; values other than text become JSON.

    >>> flatten({"trigger": {"kind": "amount", "every": 5}, "features": ["a"]})
    {'trigger.kind': 'amount', 'trigger.every': '5', 'features': '["a"]'}
    """
    flat: dict[str, str] = {}
    for name, value in values.items():
        key = prefix + (mlflow_name(name) or "_")
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{key}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            flat[key[:MOST_IN_NAME]] = text[:_MOST_IN_PARAM]
    return flat


def run_identity(run: RunRow) -> dict[str, str]:
    """Tags that identify a pipeline run."""
    # Run ids start again in another database, and one MLflow may show both: the time of creation distinguishes them.
    return {"modyn/run": str(run.id), "modyn/created": utc_text(run.created_at)}


def known_tags(tags: Mapping[str, str | None]) -> dict[str, str]:
    """Tags that are known, cut to MLflow's limit."""
    return {name: value[:_MOST_IN_TAG] for name, value in tags.items() if value is not None}


def description(parts: Sequence[str], url: str | None) -> dict[str, str]:
    """Description on the page of a run, with a link to Dagster's page if known."""
    link = f"[Dagster run]({url})" if url else ""
    return {"mlflow.note.content": "\n\n".join(filter(None, [*parts, link]))[:_MOST_IN_TAG]}
