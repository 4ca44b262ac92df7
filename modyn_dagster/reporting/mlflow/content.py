"""Content of one MLflow run: names, parameters and tags within MLflow's limits, and dataset inputs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from modyn_dagster.catalog.results.training_sets import TrainingSetRow
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.reporting.mlflow.series import Series, digest_of, utc_text
from modyn_dagster.spec.load import parse_spec
from modyn_dagster.spec.pipeline import PipelineSpec

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run


#: What MLflow keeps of a digest.
_MOST_IN_DIGEST: Final = 36


@dataclass(frozen=True, slots=True)
class DataInput:
    """A dataset of one run: its name, a digest of what is in it, what it is for, where it lies and how large it is."""

    name: str
    digest: str
    context: str
    source: Mapping[str, Any]
    profile: Mapping[str, Any]


def stream_inputs(run: RunRow) -> tuple[DataInput, ...]:
    """Of a pipeline run: the stream that it walks, and what its models are judged on."""
    dataset = str(run.spec["dataset"])
    stream = DataInput(dataset, digest_of(dataset), "stream", {"uri": f"batches/{dataset}"}, {})
    return stream, _evaluation_input(run)


def trigger_inputs(run: RunRow, chosen: TrainingSetRow | None) -> tuple[DataInput, ...]:
    """Of a trigger: its training set, where it has one, and what its model is judged on."""
    if chosen is None:
        return (_evaluation_input(run),)
    times = {"first_time": chosen.time_min, "last_time": chosen.time_max}
    profile: dict[str, Any] = {"num_rows": chosen.n_samples, "window_samples": chosen.n_pool}
    profile |= {name: utc_text(time) for name, time in times.items() if time is not None}
    source = {"uri": chosen.path, "after": chosen.after, "until": chosen.until}
    name = f"{run.spec['dataset']} training set"
    return DataInput(name, chosen.checksum[:_MOST_IN_DIGEST], "training", source, profile), _evaluation_input(run)


def log_missing_inputs(client: MlflowClient, run: Run, inputs: Sequence[DataInput]) -> None:
    """Tell MLflow of those inputs that a run does not show yet."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    shown = {(each.dataset.name, each.dataset.digest) for each in run.inputs.dataset_inputs} if run.inputs else set()
    missing = [
        DatasetInput(
            Dataset(each.name, each.digest, "local", json.dumps(dict(each.source)), profile=json.dumps(dict(each.profile))),
            [InputTag("mlflow.data.context", each.context)],
        )
        for each in inputs
        if (each.name, each.digest) not in shown
    ]
    if missing:
        client.log_inputs(run.info.run_id, missing)


def _evaluation_input(run: RunRow) -> DataInput:
    data = parse_spec(run.spec, PipelineSpec, source=run.title).evaluation.data.model_dump(mode="json")
    dataset = str(data.get("dataset") or run.spec["dataset"])
    name = f"{dataset} {data['kind']}"
    return DataInput(name, digest_of([dataset, data]), "evaluation", {"uri": f"batches/{dataset}", **data}, {})


#: What MLflow keeps of a parameter, its name and a tag.
_MOST_IN_KEY: Final = 250
_MOST_IN_PARAM: Final = 6000
_MOST_IN_TAG: Final = 8000
#: MLflow takes more, but not where a name could be read as a path.
_REFUSED_IN_KEY: Final = re.compile(r"[^\w\- ]", re.ASCII)


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


def run_identity(run: RunRow) -> dict[str, str]:
    """Tags that find a pipeline run again."""
    # Ids begin again in another database, whose runs the same MLflow may show: the time of creation tells them apart.
    return {"modyn/run": str(run.id), "modyn/created": utc_text(run.created_at)}


def tags_of(tags: Mapping[str, str | None]) -> dict[str, str]:
    """Tags as MLflow keeps them, without those that are not known."""
    return {name: value[:_MOST_IN_TAG] for name, value in tags.items() if value is not None}


def note_of(parts: Sequence[str], url: str | None) -> dict[str, str]:
    """The description in MLflow's page. A later sync that does not know Dagster's page leaves the one that does."""
    link = f"[Dagster run]({url})" if url else ""
    return {"mlflow.note.content": "\n\n".join(filter(None, [*parts, link]))[:_MOST_IN_TAG]}
