import dagster as dg
import pytest

from modyn_dagster.catalog.runs import list_runs
from modyn_dagster.catalog.triggers import TriggerRow, list_triggers
from tests.dagster.face import Face, error_of, evaluations
from tests.projects.tiny import DATASET

REPLAY = ("by_amount", "replay")


@pytest.fixture
def ingested(face: Face, days: list[str]) -> list[str]:
    cursor = face.tick("new_data__tiny").cursor
    face.tick("new_data__tiny", cursor)
    result = face.materialize((DATASET, "samples"), batches=(days[0], days[-1]))
    assert result.success, error_of(result)
    return days


def triggers_of(face: Face) -> list[TriggerRow]:
    with face.platform.transaction() as conn:
        return [row for run in list_runs(conn, "by_amount") for row in list_triggers(conn, run.id)]


def test_a_replay_materializes_its_batches_and_the_assets_and_checks_of_every_trigger(face: Face, ingested: list[str]) -> None:
    result = face.materialize(REPLAY, batches=("day_00", "day_04"))
    assert result.success, error_of(result)
    assert list(face.materializations(*REPLAY)) == ingested
    keys = [row.partition_key for row in triggers_of(face)]
    assert len(keys) == 2  # at 90 and 180 of 200 samples
    assert list(face.partitions("triggers/by_amount")) == keys
    for asset in ("training_set", "model", "evaluation"):
        assert list(face.materializations("by_amount", asset)) == keys
    checks = evaluations(result)
    assert set(checks) == {
        (name, key) for key in keys for name in ("not_empty", "only_train_samples", "loss_finite", "enough_samples")
    }
    assert checks[("loss_finite", keys[0])]


def test_the_metadata_of_a_trigger_says_why_on_what_and_how_well(face: Face, ingested: list[str]) -> None:
    assert face.materialize(REPLAY, batches=("day_00", "day_04")).success
    key = triggers_of(face)[1].partition_key
    training_set = face.materializations("by_amount", "training_set")[key]
    assert (training_set["samples"], training_set["window_samples"], training_set["trigger"]) == (90, 90, 1)
    assert training_set["reason"]
    assert training_set["first_time"] < training_set["last_time"]
    assert training_set["seconds_select"] > 0
    model = face.materializations("by_amount", "model")[key]
    assert model["epochs"] == len(model["epoch_losses"]) == 3
    assert model["last_loss"] == model["epoch_losses"][-1]
    assert model["loss_curve"].startswith("![")
    assert model["seconds_train"] > 0
    assert len(model["hash"]) >= 32
    evaluation = face.materializations("by_amount", "evaluation")[key]
    assert 0 <= evaluation["mean_accuracy"] <= 1
    assert "accuracy | roc_auc | log_loss" in evaluation["scores"]
    assert "currently active" in evaluation["composite_scores"]
    assert evaluation["score_over_time"].startswith("![")
    walked = face.materializations(*REPLAY)
    assert [walked[day]["triggers"] for day in ingested] == [0, 0, 1, 0, 1]
    assert key in walked["day_04"]["decisions"]


def test_launched_again_it_shows_everything_again_and_trains_nothing(face: Face, ingested: list[str]) -> None:
    assert face.materialize(REPLAY, batches=("day_00", "day_04")).success
    before = triggers_of(face)
    face.instance.wipe_assets([dg.AssetKey(["by_amount", asset]) for asset in ("replay", "model")])
    assert face.materialize(REPLAY, batches=("day_00", "day_04")).success
    assert triggers_of(face) == before
    assert set(face.materializations("by_amount", "model")) == {row.partition_key for row in before}


def test_it_continues_with_a_later_range_and_refuses_a_gap(face: Face, ingested: list[str]) -> None:
    assert face.materialize(REPLAY, batches=("day_00", "day_01")).success
    gap = error_of(face.materialize(REPLAY, batches=("day_03", "day_04")))
    assert "'day_01'" in gap
    assert "'day_03'" in gap
    assert face.materialize(REPLAY, batches=("day_02", "day_04")).success
    assert len(triggers_of(face)) == 2


def test_name_seed_and_restart_tell_replays_apart(face: Face, ingested: list[str]) -> None:
    for config in ({}, {"name": "other"}, {"seed": 3}, {"restart": True}):
        assert face.materialize(REPLAY, batches=("day_00", "day_02"), config=config).success
    with face.platform.transaction() as conn:
        runs = list_runs(conn, "by_amount")
    assert [(run.name, run.seed) for run in runs] == [("", 7), ("other", 7), ("", 3), ("", 7)]


def test_samples_and_their_replay_can_be_launched_together(face: Face, days: list[str]) -> None:
    cursor = face.tick("new_data__tiny").cursor
    face.tick("new_data__tiny", cursor)
    result = face.materialize((DATASET, "samples"), REPLAY, batches=("day_00", "day_04"))
    assert result.success, error_of(result)
    assert list(face.materializations(*REPLAY)) == days


def test_the_comparison_shows_table_plots_and_numbers(face: Face, ingested: list[str]) -> None:
    assert face.materialize(REPLAY, batches=("day_00", "day_04")).success
    result = face.materialize((DATASET, "comparison"))
    assert result.success, error_of(result)
    metadata = face.materializations(DATASET, "comparison")[None]
    assert "| by_amount |" in metadata["comparison"]
    assert metadata["score_over_time"].startswith("![")
    assert metadata["costs"].startswith("![")
    assert metadata["by_amount: triggers"] == 2
    assert metadata["by_amount: samples"] == 180
    assert 0 <= metadata["by_amount: score"] <= 1


def test_a_comparison_without_any_run_says_so(face: Face) -> None:
    assert face.materialize((DATASET, "comparison")).success
    assert "no pipeline has run" in face.materializations(DATASET, "comparison")[None]["comparison"]
