import re
from pathlib import Path

import dagster as dg

from modyn_dagster.catalog.runs import list_runs
from modyn_dagster.catalog.triggers import TriggerRow, list_triggers
from modyn_dagster.resources.platform import platform_of
from tests.dagster.face import Face, error_of
from tests.projects.tiny import DATASET, amount, write_pipeline

REPLAY = ("by_amount", "replay")
STAGES = ("training_set", "model", "evaluation")


def triggers(face: Face) -> list[TriggerRow]:
    with face.platform.transaction() as conn:
        return [row for run in list_runs(conn, "by_amount") for row in list_triggers(conn, run.id)]


def test_a_replay_materializes_its_batches_and_the_assets_of_every_trigger(replayed_face: Face) -> None:
    keys = [row.partition_key for row in triggers(replayed_face)]
    assert len(keys) == 2  # at 60 and 120 of 120 samples
    assert list(replayed_face.materializations(*REPLAY)) == ["day_00", "day_01", "day_02"]
    assert list(replayed_face.partitions("triggers/by_amount")) == keys
    for stage in STAGES:
        assert list(replayed_face.materializations("by_amount", stage)) == keys


def test_a_training_set_says_why_it_is_there_and_what_it_holds(replayed_face: Face) -> None:
    first, second = replayed_face.materializations("by_amount", "training_set").values()
    assert (second["samples"], second["window_samples"], second["trigger"]) == (60, 60, 1)
    assert second["trigger_key"] > first["trigger_key"]
    assert second["reason"] == "60 samples"
    assert (second["score"], second["threshold"]) == (60, 60)
    assert first["last_time"] < second["first_time"] < second["last_time"]
    assert second["checksum"] != first["checksum"]
    assert second["seconds_select"] > 0


def test_a_model_shows_its_losses_and_hashes(replayed_face: Face) -> None:
    first, second = replayed_face.materializations("by_amount", "model").values()
    assert second["epochs"] == len(second["epoch_losses"]) == 3
    assert (second["first_loss"], second["last_loss"]) == (second["epoch_losses"][0], second["epoch_losses"][-1])
    assert second["loss_curve"].startswith("![Training loss](data:image/svg+xml;base64,")
    assert first["hash"] != second["hash"]
    assert second["previous_model"] == "none: trained from scratch"
    assert second["seconds_train"] > 0
    assert "mlflow" not in second


def test_an_evaluation_shows_scores_by_interval_and_over_time(replayed_face: Face) -> None:
    for metadata in replayed_face.materializations("by_amount", "evaluation").values():
        assert metadata["intervals"] == 2
        assert 0 <= metadata["mean_accuracy"] <= 1
        assert "| interval | samples | accuracy | roc_auc | log_loss |" in metadata["scores"]
        assert "2024-01-01 – 2024-01-03 * | 80 |" in metadata["scores"]
        assert "currently active" in metadata["composite_scores"]
        assert metadata["score_over_time"].startswith("![by_amount")


def test_the_full_matrix_is_made_when_it_is_asked_for(face: Face, project: Path, ingested: list[str]) -> None:
    content = amount(every=60)
    content["evaluation"]["matrix"] = "composite"
    write_pipeline(project, content)
    platform_of.cache_clear()
    assert face.materialize(REPLAY, batches=("day_00", "day_02")).success
    keys = [row.partition_key for row in triggers(face)]
    assert [m["intervals"] for m in face.materializations("by_amount", "evaluation").values()] == [2, 1]
    result = face.materialize(("by_amount", "evaluation"), partition=keys[-1], config={"triggers": keys, "full": True})
    assert result.success, error_of(result)
    assert [m["intervals"] for m in face.materializations("by_amount", "evaluation").values()] == [2, 2]


def test_a_batch_of_a_replay_says_what_was_decided_on_it(replayed_face: Face) -> None:
    walked = replayed_face.materializations(*REPLAY)
    assert [metadata["triggers"] for metadata in walked.values()] == [0, 1, 1]
    [(key, decision)] = walked["day_02"]["decisions"].items()
    assert key == triggers(replayed_face)[1].partition_key
    assert decision == "60 samples (trained)"


def test_the_comparison_shows_table_plots_and_numbers(replayed_face: Face) -> None:
    result = replayed_face.materialize((DATASET, "comparison"))
    assert result.success, error_of(result)
    metadata = replayed_face.materializations(DATASET, "comparison")[None]
    assert re.search(r"\| by_amount \| replay \d+ \| 2 \| 120 \|", metadata["comparison"])
    for picture in ("pareto", "boxes", "matrix by_amount"):
        assert metadata[picture].startswith("![")
    assert metadata["score_over_time"].startswith("![")
    assert metadata["costs"].startswith("![")
    assert (metadata["by_amount: triggers"], metadata["by_amount: samples"]) == (2, 120)
    assert 0 <= metadata["by_amount: score"] <= 1


def test_a_comparison_without_any_run_says_so(face: Face) -> None:
    assert face.materialize((DATASET, "comparison")).success
    assert "no pipeline has run" in face.materializations(DATASET, "comparison")[None]["comparison"]


def test_launched_again_it_shows_everything_again_with_its_checks_and_trains_nothing(face: Face, ingested: list[str]) -> None:
    assert face.materialize(REPLAY, batches=("day_00", "day_02")).success
    before = triggers(face)
    face.instance.wipe_assets([dg.AssetKey(["by_amount", asset]) for asset in ("replay", *STAGES)])
    again = face.materialize(REPLAY, batches=("day_00", "day_02"))
    assert again.success, error_of(again)
    assert triggers(face) == before
    keys = {row.partition_key for row in before}
    assert all(set(face.materializations("by_amount", stage)) == keys for stage in STAGES)
    training_set = ("not_empty", "only_train_samples", "keys_once", "weights_sum", "chances_sum")
    checks = (*training_set, "loss_finite", "stored_exactly", "enough_samples")
    found = face.evaluations(again)
    assert {place: passed for place, passed in found.items() if place[0] != "champion"} == {
        (name, key): True for name in checks for key in keys
    }
    assert {key for name, key in found if name == "champion"} == keys


def test_it_continues_with_a_later_range_and_refuses_a_gap(face: Face, ingested: list[str]) -> None:
    assert face.materialize(REPLAY, batches=("day_00", "day_00")).success
    gap = error_of(face.materialize(REPLAY, batches=("day_02", "day_02")))
    assert "'day_00'" in gap
    assert "'day_02'" in gap
    assert face.materialize(REPLAY, batches=("day_01", "day_02")).success
    assert len(triggers(face)) == 2


def test_name_seed_and_restart_tell_replays_apart(face: Face, ingested: list[str]) -> None:
    configs: list[dict[str, object]] = [{}, {"name": "other"}, {"seed": 3}, {"restart": True}, {}]
    for config in configs:
        assert face.materialize(REPLAY, batches=("day_00", "day_00"), config=config).success
    with face.platform.transaction() as conn:
        runs = list_runs(conn, "by_amount")
    assert [(run.name, run.seed) for run in runs] == [("", 7), ("other", 7), ("", 3), ("", 7)]


def test_samples_and_their_replay_can_be_launched_together(face: Face, days: list[str]) -> None:
    face.tick("new_data__tiny", face.tick("new_data__tiny").cursor)
    result = face.materialize((DATASET, "samples"), REPLAY, batches=("day_00", "day_01"))
    assert result.success, error_of(result)
    assert list(face.materializations(*REPLAY)) == ["day_00", "day_01"]
