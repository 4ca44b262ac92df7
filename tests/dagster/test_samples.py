import re
from typing import Any

import dagster as dg
import pytest

from modyn_dagster.assets.metadata.entries import DETAILS
from modyn_dagster.assets.samples import announce_batches
from modyn_dagster.assets.specs import add_partitions, batches_of
from modyn_dagster.catalog.batches import BatchRow, list_batches
from modyn_dagster.catalog.database.failures import TRACEBACK
from modyn_dagster.catalog.datasets import get_dataset
from modyn_dagster.errors import ConfigError
from modyn_dagster.ingestion.formats.csv import Csv, CsvFile
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.ingestion.sources.files import LoadedFile
from tests.dagster.face import Face, deliver, error_of
from tests.projects.tiny import DATASET, ROWS, batch_text

SAMPLES = (DATASET, "samples")


def find(face: Face) -> None:
    """Two looks of the sensor."""
    face.tick("new_data__tiny", face.tick("new_data__tiny").cursor)


def test_a_batch_is_materialized_with_what_a_person_looks_at(face: Face, days: list[str]) -> None:
    find(face)
    result = face.materialize(SAMPLES, partition="day_01")
    assert result.success, error_of(result)
    [metadata] = face.materializations(*SAMPLES).values()
    assert metadata["samples"] == metadata["dagster/row_count"] == ROWS
    assert metadata["train_samples"] == ROWS
    assert metadata["first_time"] == "2024-01-02"
    assert metadata["last_time"] == "2024-01-02 13:00:00 UTC"
    assert metadata["files"] == "day_01.csv"
    assert (metadata[DETAILS]["ordinal"], len(metadata[DETAILS]["checksum"])) == (1, 32)
    assert "| label | samples | share |" in metadata["label_counts"]
    for picture in ("Labels", "label_chart"):
        assert metadata[picture].startswith("![Labels](data:image/svg+xml;base64,")
    columns = metadata["dagster/column_schema"].columns
    assert [(column.name, column.type) for column in columns][:2] == [("time", "string"), ("x", "float64")]
    checks, places = ("labels_present", "in_order"), ("day_01", None)
    assert face.evaluations(result) == {(check, place): True for check in checks for place in places}


def executions(face: Face, run_id: str) -> set[tuple[str, str | None, str]]:
    """Check, partition and status of what Dagster shows of a run's checks of the samples."""
    store = face.instance.event_log_storage
    found = set()
    for name in ("labels_present", "in_order"):
        for record in store.get_asset_check_execution_history(dg.AssetCheckKey(dg.AssetKey(SAMPLES), name), limit=100):
            if record.run_id == run_id:
                found.add((name, record.partition, record.status.value))
    return found


def test_every_check_that_a_run_planned_has_a_result(face: Face, days: list[str]) -> None:
    find(face)
    result = face.materialize(SAMPLES, partition="day_00")
    names, run = ("labels_present", "in_order"), result.run_id
    assert executions(face, run) == {(name, key, "SUCCEEDED") for name in names for key in ("day_00", None)}
    # One batch is good, one comes too late, one is bad.
    deliver(face.settings.project, "late_day_03", batch_text(0))
    deliver(face.settings.project, "late_day_04", "no,header\n1,2\n")
    find(face)
    result = face.materialize(SAMPLES, batches=("day_01", "late_day_04"))
    assert not result.success
    found = executions(face, result.run_id)
    assert {status for _, key, status in found if key is None} == {"SUCCEEDED", "FAILED"}
    assert ("in_order", None, "FAILED") in found
    assert ("in_order", "late_day_03", "FAILED") in found
    assert ("in_order", "day_01", "SUCCEEDED") in found
    assert not any(status == "PLANNED" for _, _, status in found)


def test_late_samples_are_counted_and_a_check_warns_of_them(face: Face, days: list[str]) -> None:
    deliver(face.settings.project, "late_day_01", batch_text(1, hours_late=-1))
    find(face)
    assert face.materialize(SAMPLES, batches=("day_00", "day_02")).success
    result = face.materialize(SAMPLES, partition="late_day_01")
    assert result.success, "late samples stop nothing"
    shown = {key: metadata["late_samples"] for key, metadata in face.materializations(*SAMPLES).items()}
    assert shown == {"day_00": 0, "day_01": 0, "day_02": 0, "late_day_01": ROWS}
    [check] = [found for found in result.get_asset_check_evaluations() if found.check_name == "in_order" and found.partition]
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "40 of 40 samples are older than what earlier batches had reached" in str(check.description)


@pytest.mark.soak("screens")
def test_a_range_is_one_run_with_the_metadata_of_every_batch(replayed_face: Face) -> None:
    found = replayed_face.materializations(*SAMPLES)
    assert {key: metadata[DETAILS]["ordinal"] for key, metadata in found.items()} == {"day_00": 0, "day_01": 1, "day_02": 2}
    assert replayed_face.instance.get_runs_count() == 2  # it, and the replay


def test_a_range_goes_on_behind_bad_names_and_faults_that_nobody_foresaw(
    face: Face, days: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = Csv.open

    def broken(self: Csv, file: LoadedFile) -> CsvFile:
        if file.path == "day_01.csv":
            raise StopIteration
        return sound(self, file)

    monkeypatch.setattr(Csv, "open", broken)
    deliver(face.settings.project, "day_01\udcff", batch_text(1))
    find(face)
    result = face.materialize(SAMPLES, batches=(r"day_01\xff", "day_02"))
    assert not result.success
    assert set(face.materializations(*SAMPLES)) == {"day_00", "day_02"}
    states = {batch.partition_key: batch for batch in batches_in(face)}
    assert {key: batch.state for key, batch in states.items()} == {
        r"day_01\xff": "failed",
        "day_00": "ingested",
        "day_01": "failed",
        "day_02": "ingested",
    }
    assert "is not UTF-8; rename it" in error_of(result)
    assert "raise StopIteration" in states["day_01"].source[TRACEBACK]
    # Nothing is asked for again.
    assert face.tick("new_data__tiny").requests == []


def batches_in(face: Face) -> list[BatchRow]:
    with face.platform.transaction() as conn:
        return list_batches(conn, get_dataset(conn, DATASET).id)


def test_ingesting_again_is_a_no_op_and_a_changed_file_an_error(face: Face, days: list[str]) -> None:
    find(face)
    assert face.materialize(SAMPLES, partition="day_00").success
    assert face.materialize(SAMPLES, partition="day_00").success
    deliver(face.settings.project, "day_00", batch_text(7))
    error = error_of(face.materialize(SAMPLES, partition="day_00"))
    assert "day_00.csv" in error
    assert "changed after it was ingested" in error


def test_a_bad_batch_is_red_with_row_and_column_and_the_others_of_its_run_are_there(face: Face, days: list[str]) -> None:
    deliver(face.settings.project, "day_01", re.sub("Z,[^,]*", "Z,none", batch_text(1), count=1))
    find(face)
    result = face.materialize(SAMPLES, batches=("day_00", "day_02"))
    assert not result.success
    assert "day_01.csv, row 1, column 'x'" in error_of(result)
    assert set(face.materializations(*SAMPLES)) == {"day_00", "day_02"}
    assert {batch.partition_key: batch.state for batch in face.batches(DATASET)}["day_01"] == "failed"
    [shown] = failures(face)
    assert (shown["partition"], shown["File"]) == ("day_01", "day_01.csv")
    assert shown["Reason"].startswith("day_01.csv, row 1, column 'x'")
    assert shown["Remedy"].startswith("Correct the file")


def failures(face: Face) -> list[dict[str, Any]]:
    """Observations of the samples: what a failed batch shows on its partition."""
    records = face.instance.fetch_observations(dg.AssetKey(SAMPLES), limit=100).records
    found = [record.asset_observation for record in records]
    return [{"partition": o.partition, **{name: v.value for name, v in o.metadata.items()}} for o in found if o is not None]


def test_a_partition_that_nobody_registered_says_who_registers_batches(face: Face) -> None:
    find(face)
    add_partitions(face.instance, batches_of(DATASET), ["by_hand"])
    error = error_of(face.materialize(SAMPLES, partition="by_hand"))
    assert "only new_data__tiny and `modyn-dagster dataset import` register them" in error
    assert "'by_hand'" in error


@pytest.mark.parametrize("key", ["a,b", "a...b", "a|b"])
def test_a_key_that_dagsters_pages_cannot_select_is_refused(face: Face, key: str) -> None:
    with pytest.raises(ConfigError, match="must not hold"):
        add_partitions(face.instance, batches_of(DATASET), [key])
    assert face.partitions("batches/tiny") == []


def test_batches_imported_without_dagster_are_shown_once_with_metadata_and_check(face: Face, days: list[str]) -> None:
    deliver(face.settings.project, "day_02", "time,x,y,label\nno time,1,2,0\n")
    platform = face.platform
    import_history(platform.engine, platform.home, platform.project.datasets[DATASET], platform.project.root_of(DATASET))
    assert announce_batches(face.instance, platform, DATASET) == 2
    assert announce_batches(face.instance, platform, DATASET) == 0
    [shown] = failures(face)
    assert (shown["partition"], shown["File"]) == ("day_02", "day_02.csv")
    assert "no time" in shown["Reason"]
    [run] = face.instance.get_runs()
    assert (run.status, run.tags["dagster/partition"]) == (dg.DagsterRunStatus.FAILURE, "day_02")
    [event] = face.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
    assert "day_02.csv" in str(event.get_dagster_event().step_failure_data.error)
    assert list(face.partitions("batches/tiny")) == days
    batches = face.materializations(*SAMPLES)
    assert {key: metadata["samples"] for key, metadata in batches.items()} == {"day_00": ROWS, "day_01": ROWS}
    checks = face.instance.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(dg.AssetKey(SAMPLES), "labels_present"), limit=10
    )
    found = [record.evaluation for record in checks if isinstance(record.evaluation, dg.AssetCheckEvaluation)]
    assert {check.partition for check in found} == {"day_00", "day_01"}
