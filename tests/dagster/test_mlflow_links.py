"""Links between Dagster and MLflow; a MLflow that is absent costs a warning."""

import pytest

from modyn_dagster.reporting.mlflow.client import open_client
from tests.dagster.face import Face, error_of

REPLAY = ("by_amount", "replay")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A MLflow for the tests of this file: it takes seconds to make its tables."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"
    open_client(uri)
    return uri


@pytest.fixture
def mlflow_uri(database: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MODYN_MLFLOW_URI", database)
    monkeypatch.setenv("MODYN_MLFLOW_UI_URL", "http://mlflow.here:5000")
    monkeypatch.setenv("MODYN_DAGSTER_UI_URL", "http://dagster.here:3000/")
    return database


@pytest.mark.soak("screens")
def test_replay_and_triggers_are_linked_both_ways(
    face: Face, ingested: list[str], mlflow_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Events that were shown as they come would have no links: MLflow's process is not even ready.
    monkeypatch.setattr("modyn_dagster.assets.replay.SHOW_AFTER", 0.0)
    result = face.materialize(REPLAY, batches=("day_00", "day_01"))
    assert result.success, error_of(result)
    run = face.instance.get_run_by_id(result.run_id)
    assert run is not None
    client = open_client(mlflow_uri)
    parent = client.get_run(run.tags["mlflow/run_id"])
    assert parent.data.tags["dagster/run_id"] == result.run_id
    assert f"http://dagster.here:3000/runs/{result.run_id}" in parent.data.tags["mlflow.note.content"]
    [model] = face.materializations("by_amount", "model").values()
    # The page on which every version stands with when it was live.
    assert model["mlflow_versions"] == "http://mlflow.here:5000/#/models/by_amount.replay"
    assert client.get_registered_model("by_amount.replay").aliases.keys() == {"current", "champion", "live"}
    page, _, child = model["mlflow"].rpartition("/")
    assert page.startswith("http://mlflow.here:5000/#/experiments/")
    assert client.get_run(child).data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert face.materializations(*REPLAY)["day_01"]["mlflow"].endswith(parent.info.run_id)


def test_a_training_links_to_its_trigger(face: Face, ingested: list[str], mlflow_uri: str) -> None:
    [request] = face.tick("triggering__by_amount").requests
    result = face.launch(request)
    assert result.success, error_of(result)
    run = face.instance.get_run_by_id(result.run_id)
    assert run is not None
    child = open_client(mlflow_uri).get_run(run.tags["mlflow/run_id"])
    assert child.data.tags["dagster/partition"] == request.partition_key


@pytest.mark.soak("screens")
def test_a_mlflow_that_does_not_answer_is_a_warning(
    face: Face, ingested: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MODYN_MLFLOW_URI", "http://127.0.0.1:1")
    result = face.materialize(REPLAY, batches=("day_00", "day_01"), level="WARNING")
    assert result.success, error_of(result)
    warnings = [line for line in capfd.readouterr().err.splitlines() if "not shown in MLflow" in line]
    assert len(warnings) == 1
    assert "127.0.0.1:1" in warnings[0]
    [model] = face.materializations("by_amount", "model").values()
    assert "mlflow" not in model
