"""The data that a run in MLflow was made from, as its dataset inputs: what was trained on, and what is judged on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.training_sets import TrainingSetRow
from modyn_dagster.reporting.tracked_points import digest_of, utc_text
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
    return stream, _judged_on(run)


def trigger_inputs(run: RunRow, chosen: TrainingSetRow | None) -> tuple[DataInput, ...]:
    """Of a trigger: its training set, where it has one, and what its model is judged on."""
    if chosen is None:
        return (_judged_on(run),)
    times = {"first_time": chosen.time_min, "last_time": chosen.time_max}
    profile: dict[str, Any] = {"num_rows": chosen.n_samples, "window_samples": chosen.n_pool}
    profile |= {name: utc_text(time) for name, time in times.items() if time is not None}
    source = {"uri": chosen.path, "after": chosen.after, "until": chosen.until}
    name = f"{run.spec['dataset']} training set"
    return DataInput(name, chosen.checksum[:_MOST_IN_DIGEST], "training", source, profile), _judged_on(run)


def log_missing(client: MlflowClient, run: Run, inputs: Sequence[DataInput]) -> None:
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


def _judged_on(run: RunRow) -> DataInput:
    data = parse_spec(run.spec, PipelineSpec, source=run.title).evaluation.data.model_dump(mode="json")
    dataset = str(data.get("dataset") or run.spec["dataset"])
    name = f"{dataset} {data['kind']}"
    return DataInput(name, digest_of([dataset, data]), "evaluation", {"uri": f"batches/{dataset}", **data}, {})
