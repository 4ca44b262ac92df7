"""MLflow under retention and removal: aliases keep models, and a removed pipeline leaves its lists."""

import pytest
from mlflow import MlflowClient

from modyn_dagster.cli.removal import forget_in_mlflow
from modyn_dagster.errors import TrackingError
from modyn_dagster.pipeline.operate.removal.plan import RemovalPlan
from modyn_dagster.reporting.mlflow.client import open_client
from modyn_dagster.reporting.mlflow.tracker import Tracker
from modyn_dagster.resources.mlflow import MlflowResource
from tests.reporting.story import Story, year


@pytest.fixture
def client(mlflow_uri: str) -> MlflowClient:
    return open_client(mlflow_uri)


def shown(tracker: Tracker, story: Story) -> list[str]:
    """Hashes of three trained models that MLflow shows."""
    rows = [story.train(10 * n, year(n)) for n in (1, 2, 3)]
    tracker.sync_all(story.engine, story.run)
    return [f"hash-{story.run.id}-{row.ordinal}" for row in rows]


def test_models_are_found_by_their_aliases_in_mlflow(
    tracker: Tracker, client: MlflowClient, story: Story, mlflow_uri: str
) -> None:
    first, second, third = shown(tracker, story)
    client.set_registered_model_alias(f"{story.pipeline}.replay", "rollback", "1")
    client.set_registered_model_alias(f"{story.pipeline}.replay", "mine", "2")
    mlflow = MlflowResource(tracking_uri=mlflow_uri)
    assert mlflow.aliased_models(story.pipeline, ["rollback", "unknown"]) == {first}
    assert mlflow.aliased_models(story.pipeline, ["mine", "current"]) == {second, third}
    assert mlflow.aliased_models("nobody", ["mine"]) == set()


def test_aliases_without_an_mlflow_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MODYN_MLFLOW_URI", raising=False)
    with pytest.raises(TrackingError, match="tracking is off"):
        MlflowResource().aliased_models("by_amount", ["rollback"])


@pytest.mark.soak("screens")
def test_a_removed_pipeline_goes_to_the_trash_with_its_experiment_and_loses_its_registered_models(
    tracker: Tracker, client: MlflowClient, story: Story, mlflow_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown(tracker, story)
    monkeypatch.setenv("MODYN_MLFLOW_URI", mlflow_uri)
    plan = RemovalPlan("pipeline", story.pipeline, "", [])
    expected = [f"experiment {story.pipeline} in MLflow's trash, until `mlflow gc` empties it"]
    # A second call, as after a kill, ends the same.
    assert [*forget_in_mlflow(plan)] == [*forget_in_mlflow(plan)] == expected
    experiment = client.get_experiment_by_name(story.pipeline)
    assert experiment is not None
    assert experiment.lifecycle_stage == "deleted"
    assert client.search_registered_models(f"name = '{story.pipeline}.replay'") == []
    # What begins anew is shown again.
    tracker.sync_all(story.engine, story.run)
    assert client.get_experiment(experiment.experiment_id).lifecycle_stage == "active"


def test_an_mlflow_that_does_not_answer_stops_no_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODYN_MLFLOW_URI", "http://127.0.0.1:9")
    [line] = forget_in_mlflow(RemovalPlan("dataset", "tiny", "", []))
    assert line.startswith("experiment tiny.comparison in MLflow, and its registered models if there are any: ")
