"""Trigger assets materialized by a person."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from modyn_dagster.assets.metadata.entries import DETAILS
from modyn_dagster.assets.specs import add_partitions, triggers_of
from modyn_dagster.catalog.results.training_sets import record_training_set
from modyn_dagster.catalog.runs import list_runs
from modyn_dagster.catalog.triggers import TriggerRow, claim, list_triggers
from modyn_dagster.errors import DatabaseDown
from modyn_dagster.pipeline.stages import trigger_stages
from modyn_dagster.pipeline.stages.model.stage import train_model
from tests.dagster.face import Face, error_of
from tests.projects.tiny import DATASET, amount, write_pipeline

PIPELINE = "by_amount"
ALL = tuple((PIPELINE, asset) for asset in ("training_set", "model", "evaluation"))


@pytest.fixture
def replayed(face: Face, ingested: list[str]) -> list[TriggerRow]:
    """Two trained triggers of a replay."""
    result = face.materialize((PIPELINE, "replay"), batches=(ingested[0], ingested[-1]))
    assert result.success, error_of(result)
    return triggers(face)


@pytest.fixture
def pending(face: Face, ingested: list[str]) -> TriggerRow:
    """A trigger that the sensor has decided and nobody has trained."""
    face.tick(f"triggering__{PIPELINE}")
    [row] = triggers(face)
    return row


def triggers(face: Face) -> list[TriggerRow]:
    with face.platform.transaction() as conn:
        return [row for run in list_runs(conn, PIPELINE) for row in list_triggers(conn, run.id)]


@pytest.mark.soak("screens")
def test_a_trained_trigger_runs_again_and_reaches_the_same_hashes(face: Face, replayed: list[TriggerRow]) -> None:
    key = replayed[0].partition_key
    before = {asset: face.materializations(*asset)[key] for asset in ALL[:2]}
    result = face.materialize(*ALL, partition=key)
    assert result.success, error_of(result)
    assert face.materializations(*ALL[0])[key][DETAILS]["checksum"] == before[ALL[0]][DETAILS]["checksum"]
    assert face.materializations(*ALL[1])[key]["model"] == before[ALL[1]]["model"]
    assert triggers(face) == replayed
    assert set(face.evaluations(result)) == {
        (name, key)
        for names in (
            ("not_empty", "only_train_samples", "keys_once", "weights_sum", "chances_sum"),
            ("loss_finite", "stored_exactly"),
            ("enough_samples", "champion"),
        )
        for name in names
    }


@pytest.mark.soak("screens")
def test_a_training_set_that_is_no_longer_the_same_is_an_error(face: Face, replayed: list[TriggerRow], home: Path) -> None:
    with face.platform.transaction() as conn:
        conn.exec_driver_sql("update training_set set checksum = 'another'")
    error = error_of(face.materialize(ALL[0], partition=replayed[0].partition_key))
    assert "selecting again gave another training set" in error


def test_a_partition_without_a_decision_says_so(face: Face, ingested: list[str]) -> None:
    add_partitions(face.instance, triggers_of(PIPELINE), ["000007-000001"])
    error = error_of(face.materialize(*ALL, partition="000007-000001"))
    assert "only the pipeline's own decisions make them" in error
    assert "'000007-000001'" in error


@pytest.mark.soak("screens")
def test_one_asset_after_the_other_in_runs_of_their_own(face: Face, pending: TriggerRow) -> None:
    for asset in ALL:
        result = face.materialize(asset, partition=pending.partition_key)
        assert result.success, error_of(result)
    [row] = triggers(face)
    # The run that selected was over, so the one that trained took the trigger from it.
    assert (row.state, row.attempt) == ("trained", 2)


def test_a_trigger_that_a_living_run_holds_is_left_to_it(face: Face, pending: TriggerRow) -> None:
    holder = face.instance.create_run_for_job(face.defs.resolve_job_def("retention"))
    with face.platform.transaction() as conn:
        claim(conn, pending, holder.run_id)
    error = error_of(face.materialize(*ALL, partition=pending.partition_key))
    assert "attempt 1 is no longer the current one" in error
    [row] = triggers(face)
    assert (row.state, row.dagster_run_id) == ("training", holder.run_id)


def test_a_model_without_a_training_set_says_what_to_do(face: Face, pending: TriggerRow) -> None:
    error = error_of(face.materialize(ALL[1], partition=pending.partition_key))
    assert "has no training set yet; materialize it first" in error
    [row] = triggers(face)
    assert (row.state, row.attempt) == ("pending", 2)
    assert "no training set" in str(row.error)


@pytest.mark.soak("screens")
def test_a_model_whose_commit_was_not_answered_is_shown_without_training_it_again(
    face: Face, pending: TriggerRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, trainings = train_model, list[str]()

    def answer_lost(*arguments: Any) -> None:
        trainings.append("training")
        trained(*arguments)
        raise DatabaseDown("127.0.0.1:5432/modyn")

    monkeypatch.setattr(trigger_stages, "train_model", answer_lost)
    result = face.materialize(*ALL, partition=pending.partition_key)
    assert result.success, error_of(result)
    assert len(trainings) == 1
    assert [row.state for row in triggers(face)] == ["trained"]
    assert [list(face.materializations(*asset)) for asset in ALL] == [[pending.partition_key]] * 3


def test_nothing_is_trained_or_evaluated_for_an_empty_training_set(face: Face, pending: TriggerRow) -> None:
    with face.platform.transaction() as conn:
        nothing = {"n_pool": 0, "n_samples": 0, "time_min": None, "time_max": None, "path": "none", "checksum": "none"}
        record_training_set(conn, pending.id, {"after": -1, "until": pending.key, **nothing})
    result = face.materialize(*ALL[1:], partition=pending.partition_key)
    assert result.success, error_of(result)
    assert result.get_asset_materialization_events() == []
    assert [event.step_key for event in result.all_events if event.is_step_skipped] == [f"{PIPELINE}__evaluation"]
    assert [row.state for row in triggers(face)] == ["skipped"]


@pytest.mark.soak("screens")
def test_one_run_judges_many_models_and_one_that_cannot_be_judged_fails_it_afterwards(
    face: Face, replayed: list[TriggerRow]
) -> None:
    first, second = replayed
    with face.platform.transaction() as conn:
        conn.exec_driver_sql("delete from evaluation")
        conn.exec_driver_sql(f"update prediction_file set checksum = 'another' where trigger_id = {first.id}")
        [stored] = conn.exec_driver_sql(f"select hash from model where trigger_id = {first.id}").scalars()
    for path in (face.settings.home / "models").rglob(f"*{stored}*"):
        path.write_bytes(b"damaged")
    keys = [row.partition_key for row in replayed]
    result = face.materialize(ALL[2], partition=keys[-1], config={"triggers": keys})
    assert [event.partition for event in result.get_asset_materialization_events()] == [second.partition_key]
    assert stored in error_of(result)


@pytest.mark.soak("screens")
def test_retention_removes_files_and_leaves_rows(face: Face, project: Path, days: list[str]) -> None:
    write_pipeline(project, amount(every=60, retention={"training_sets": 1, "models": {"newest": 1, "aliases": ["rollback"]}}))
    face.tick("new_data__tiny", face.tick("new_data__tiny").cursor)
    assert face.materialize((DATASET, "samples"), batches=(days[0], days[-1])).success
    assert face.materialize((PIPELINE, "replay"), batches=(days[0], days[-1])).success
    files = face.settings.home / "training_sets"
    assert len(list(files.rglob("*.arrow"))) == 2
    result = face.defs.resolve_job_def("retention").execute_in_process(instance=face.instance)
    assert result.success
    assert len(list(files.rglob("*.arrow"))) == 1
    assert len(triggers(face)) == 2
    removed = dict(result.events_for_node("apply_retention")[-2].step_output_data.metadata)
    assert removed["training_sets"] == dg.MetadataValue.int(1)
    # MLflow, which has the aliases, is off: all models stay.
    assert removed["models"] == dg.MetadataValue.int(0)
