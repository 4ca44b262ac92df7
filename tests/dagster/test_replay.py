import errno
import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from modyn_dagster.assets.metadata.entries import DETAILS, rounded
from modyn_dagster.catalog.runs import list_runs
from modyn_dagster.catalog.triggers import TriggerRow, list_triggers
from modyn_dagster.cli import dagster_runs
from modyn_dagster.cli.dagster_runs import ReplayOptions, replay_range
from modyn_dagster.resources.platform import platform_of
from tests.dagster.face import Face, error_of
from tests.projects.tiny import DATASET, amount, write_pipeline

REPLAY = ("by_amount", "replay")
STAGES = ("training_set", "model", "evaluation")


def triggers(face: Face) -> list[TriggerRow]:
    with face.platform.transaction() as conn:
        return [row for run in list_runs(conn, "by_amount") for row in list_triggers(conn, run.id)]


@pytest.mark.soak("screens")
def test_a_replay_materializes_its_batches_and_the_assets_of_every_trigger(replayed_face: Face) -> None:
    keys = [row.partition_key for row in triggers(replayed_face)]
    assert len(keys) == 2  # at 60 and 120 of 120 samples
    assert list(replayed_face.materializations(*REPLAY)) == ["day_00", "day_01", "day_02"]
    assert list(replayed_face.partitions("triggers/by_amount")) == keys
    for stage in STAGES:
        assert list(replayed_face.materializations("by_amount", stage)) == keys


def test_a_training_set_says_why_it_is_there_and_what_it_holds(replayed_face: Face) -> None:
    first, second = replayed_face.materializations("by_amount", "training_set").values()
    assert list(second)[:4] == ["Decision score", "Decision threshold", "Reason", "Score over time"]
    assert (second["Decision score"], second["Decision threshold"], second["Reason"]) == (60, 60, "60 samples")
    assert (second["samples"], second["window_samples"]) == (60, 60)
    assert first["last_time"] < second["first_time"] < second["last_time"]
    before, after = first[DETAILS], second[DETAILS]
    assert (after["trigger"], after["run"]) == (1, "replay run 1 of by_amount")
    assert (after["trigger_key"] > before["trigger_key"], after["checksum"] != before["checksum"]) == (True, True)
    assert second["Trigger"].startswith("replay run 1 of by_amount, no. 1, 2024-01-0")
    assert second["seconds"] > 0
    assert second["time"].startswith("select ")


def test_a_model_shows_its_losses_and_hashes(replayed_face: Face) -> None:
    first, second = replayed_face.materializations("by_amount", "model").values()
    assert list(second)[:3] == ["Final loss", "Reason", "Training loss"]
    losses = second[DETAILS]["epoch_losses"]
    assert second["epochs"] == len(losses) == 3
    assert (second["first_loss"], second["Final loss"]) == (rounded(losses[0]), rounded(losses[-1]))
    for picture in ("Training loss", "loss_chart"):
        assert second[picture].startswith("![Training loss](data:image/svg+xml;base64,")
    assert first["model"] != second["model"]
    assert second["previous_model"] == "none: trained from scratch"
    assert "train " in second["time"]
    assert "mlflow" not in second


def test_an_evaluation_shows_scores_by_interval_and_over_time(replayed_face: Face) -> None:
    for metadata in replayed_face.materializations("by_amount", "evaluation").values():
        assert list(metadata)[:3] == ["Mean accuracy", "Reason", "Score over time"]
        assert (metadata["intervals"], metadata["Reason"]) == (2, "60 samples")
        assert 0 <= metadata["Mean accuracy"] <= 1
        assert "| interval | samples | accuracy | roc_auc | log_loss |" in metadata["scores"]
        assert "2024-01-01 – 2024-01-03 * | 80 |" in metadata["scores"]
        assert "currently active" in metadata["composite_scores"]
        assert metadata["Score over time"].startswith("![accuracy over time](data:image/svg+xml")
        assert metadata["chart"].startswith("![by_amount")


def test_leading_entries_are_shown_in_place_and_details_come_last(replayed_face: Face) -> None:
    """Dagster sorts by label, and shows Markdown of less than 1,000 characters without a click."""
    for stage, lead in zip((*STAGES, "replay"), ("Decision score", "Final loss", "Mean accuracy", "Decision score")):
        *_, metadata = replayed_face.materializations("by_amount", stage).values()
        labels = sorted(metadata)
        assert (labels[0], labels[-1]) == (lead, list(metadata)[-1]) == (lead, DETAILS)
        assert all(len(str(metadata[label])) < 1_000 for label in labels if label[0].isupper())


@pytest.mark.soak("screens")
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
    assert [metadata["Reason"] for metadata in walked.values()] == ["no trigger", *["60 samples (trained)"] * 2]
    assert list(walked["day_02"][DETAILS]["triggers"]) == [triggers(replayed_face)[1].partition_key]


def test_the_comparison_shows_table_plots_and_numbers(replayed_face: Face) -> None:
    result = replayed_face.materialize((DATASET, "comparison"))
    assert result.success, error_of(result)
    metadata = replayed_face.materializations(DATASET, "comparison")[None]
    assert f"by_amount | {metadata['by_amount: score']:.4f}"[:17] in metadata["Comparison"]
    assert metadata["Comparison"].startswith("| pipeline | accuracy | models | time |\n")
    assert metadata["Report"] == f"/modyn/reports/{DATASET}.html"
    assert (replayed_face.settings.reports_folder / f"{DATASET}.html").is_file()
    assert metadata["Best score"].startswith("by_amount: accuracy 0.")
    assert re.search(r"\| by_amount \| replay \d+ \| 2 \| 120 \|", metadata["comparison in full"])
    for picture in ("pareto", "boxes", "matrix by_amount"):
        assert metadata[picture].startswith("![")
    for name in ("Score over time", "chart"):
        assert metadata[name].startswith("![")
    assert metadata["costs"].startswith("![")
    assert (metadata["by_amount: triggers"], metadata["by_amount: samples"]) == (2, 120)
    assert 0 <= metadata["by_amount: score"] <= 1


def test_a_comparison_without_any_run_says_so(face: Face) -> None:
    assert face.materialize((DATASET, "comparison")).success
    assert "no pipeline has run" in face.materializations(DATASET, "comparison")[None]["Best score"]


@pytest.mark.soak("screens")
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


@pytest.mark.soak("screens")
def test_it_continues_with_a_later_range_and_refuses_a_gap(face: Face, ingested: list[str]) -> None:
    assert face.materialize(REPLAY, batches=("day_00", "day_00")).success
    gap = error_of(face.materialize(REPLAY, batches=("day_02", "day_02")))
    assert "'day_00'" in gap
    assert "'day_02'" in gap
    assert face.materialize(REPLAY, batches=("day_01", "day_02")).success
    assert len(triggers(face)) == 2


@pytest.mark.soak("screens")
def test_name_seed_and_restart_tell_replays_apart(face: Face, ingested: list[str]) -> None:
    configs: list[dict[str, object]] = [{}, {"name": "other"}, {"seed": 3}, {"restart": True}, {}]
    for config in configs:
        assert face.materialize(REPLAY, batches=("day_00", "day_00"), config=config).success
    with face.platform.transaction() as conn:
        runs = list_runs(conn, "by_amount")
    assert [(run.name, run.seed) for run in runs] == [("", 7), ("other", 7), ("", 3), ("", 7)]


@pytest.mark.soak("screens")
def test_a_restart_goes_on_with_the_new_replay_after_dagster_lost_its_storage(
    face: Face, ingested: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert face.materialize(REPLAY, batches=("day_00", "day_02")).success
    before, launch, launches = triggers(face), dagster_runs.materialize_asset, list[str]()

    def storage_lost_once(*arguments: Any, **options: Any) -> None:
        launches.append("launch")
        launch(*arguments, **options)
        if len(launches) == 1:
            raise OSError(errno.EIO, "lost while it recorded that the run is done")

    monkeypatch.setattr(dagster_runs, "materialize_asset", storage_lost_once)
    options = ReplayOptions(restart_of=before[0].run_id)
    replay_range(face.defs, face.instance, "by_amount", ("day_00", "day_02"), options)
    with face.platform.transaction() as conn:
        assert [run.state for run in list_runs(conn, "by_amount")] == ["finished"] * 2
    assert (len(launches), len(triggers(face))) == (2, 2 * len(before))


@pytest.mark.soak("screens")
def test_samples_and_their_replay_can_be_launched_together(face: Face, days: list[str]) -> None:
    face.tick("new_data__tiny", face.tick("new_data__tiny").cursor)
    result = face.materialize((DATASET, "samples"), REPLAY, batches=("day_00", "day_01"))
    assert result.success, error_of(result)
    assert list(face.materializations(*REPLAY)) == ["day_00", "day_01"]
