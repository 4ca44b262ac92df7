"""Everything that MLflow shows of a run of a pipeline, to be compared."""

from typing import Any

from modyn_dagster.catalog.runs import RunRow, list_runs
from modyn_dagster.reporting.mlflow.client import open_client
from modyn_dagster.reporting.mlflow.registry.registered_models import registered_name
from modyn_dagster.reporting.mlflow.series import SERIES_PREFIXES
from modyn_dagster.reporting.mlflow.tracker import Tracker
from tests.dagster.face import Face

#: Tags and metrics that differ between two replays of the same stream.
OF_ONE_RUN = (
    "modyn/run",
    "modyn/created",
    "modyn/trigger",
    "modyn/digest",
    "modyn/files",
    "mlflow.runName",
    "mlflow.parentRunId",
    "seconds/",
    "training/seconds",
    "training/samples_per_second",
    "system/",
)


def run_of(face: Face, pipeline: str, name: str = "") -> RunRow:
    """The newest run of a pipeline with a name."""
    with face.platform.transaction() as conn:
        return [run for run in list_runs(conn, pipeline) if run.name == name][-1]


def content(face: Face, uri: str, pipeline: str, name: str = "") -> dict[str, Any]:
    """MLflow's run of a pipeline run, and those of its triggers, by MLflow's ids; without the Dagster runs that told of them."""
    client, parent = open_client(uri), run_of(face, pipeline, name).mlflow_run_id
    assert parent is not None
    experiment = client.get_run(parent).info.experiment_id
    shown = {}
    for run in [*client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{parent}'"), client.get_run(parent)]:
        tags = {name: value for name, value in run.data.tags.items() if not name.startswith(("dagster/", "mlflow.note"))}
        series = {
            name: [(p.step, p.value) for p in client.get_metric_history(run.info.run_id, name)] for name in run.data.metrics
        }
        shown[run.info.run_id] = (run.info.run_name, run.info.status, run.data.params, tags, series)
    return shown


def results(face: Face, uri: str, pipeline: str, name: str) -> dict[str, Any]:
    """The same of a replay, but for what no other replay of the same stream has; and the number of its registered models."""
    run = run_of(face, pipeline, name)
    shown = {}
    for _, status, params, tags, series in content(face, uri, pipeline, name).values():
        ordinal = tags.get("modyn/trigger", "").rpartition("-")[2]
        # A number that changed while the replay went on has its earlier values too, where MLflow was there to take them.
        latest = {key: value if key.startswith(SERIES_PREFIXES) else value[-1:] for key, value in series.items()}
        own = [{key: value for key, value in part.items() if not key.startswith(OF_ONE_RUN)} for part in (tags, latest)]
        shown[ordinal] = (status, {key: value for key, value in params.items() if key != "run.name"}, own)
    versions = open_client(uri).search_model_versions(f"name = '{registered_name(run)}'")
    return shown | {"models": sum(version.tags["modyn/run"] == str(run.id) for version in versions)}


def shown_in_full(face: Face, uri: str, pipeline: str, n_triggers: int) -> bool:
    """True if a sync of everything adds nothing to what MLflow shows."""
    before = content(face, uri, pipeline)
    Tracker(open_client(uri), "http://mlflow.here:5000").sync_all(face.platform.engine, run_of(face, pipeline))
    return len(before) == n_triggers + 1 and content(face, uri, pipeline) == before
