"""The asset ``<dataset>/labels`` and its sensor, as Dagster's daemon and a person at its pages drive them."""

import os

import dagster as dg
import pytest
import yaml

from modyn_dagster.assets.labels.asset import announce_labels
from modyn_dagster.assets.metadata.entries import DETAILS
from modyn_dagster.sensors import ingestion_requests
from tests.dagster.face import Face, error_of, ingest_day
from tests.projects.tiny import DATASET

LABELS = (DATASET, "labels")
FILES = {"root": "../labels", "format": {"kind": "csv"}, "batches": {"kind": "file", "pattern": "*.csv"}}


def write_labels(face: Face, name: str, rows: str) -> None:
    path = face.settings.project / "labels" / f"{name}.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"id,label,known_at\n{rows}")
    os.utime(path, (1.7e9, 1.7e9))


@pytest.fixture
def later(face: Face) -> Face:
    """The project with ids and labels that arrive later, and two ingested days of three samples."""
    project = face.settings.project
    path = project / "datasets" / f"{DATASET}.yaml"
    content = yaml.safe_load(path.read_text()) | {"id": {"source": "column", "column": "id"}}
    content["label"] = {"kind": "class", "n_classes": 2, "arrives": "later", "files": FILES}
    path.write_text(yaml.safe_dump(content))
    for day in (0, 1):
        rows = "".join(f"2024-01-0{day + 1}T0{hour}:00:00,{10 * day + hour},0.5\n" for hour in range(3))
        data = project / "data" / f"day_0{day}.csv"
        data.write_text("time,id,x\n" + rows)
        os.utime(data, (1.7e9, 1.7e9))
    (project / "labels").mkdir()
    for day in (0, 1):
        ingest_day(face, f"day_0{day}")
    return face


@pytest.mark.soak("screens")
def test_the_sensor_finds_label_files_and_a_run_shows_what_was_in_them(later: Face) -> None:
    write_labels(later, "a", "0,1,2024-01-02\n1,0,2024-01-02\n1,1,2024-01-03\n99,1,2024-01-03\n")
    first = later.tick("new_labels__tiny")
    assert "1 may still be written" in str(first.skipped)
    [request] = later.tick("new_labels__tiny", first.cursor).requests
    assert later.partitions("labels/tiny") == ["a"]
    result = later.materialize(LABELS, partition=request.partition_key)
    assert result.success, error_of(result)
    [metadata] = later.materializations(*LABELS).values()
    assert (metadata["labels"], metadata["known_labels"], metadata["waiting_labels"], metadata["corrections"]) == (4, 3, 1, 1)
    assert metadata["coverage"] == round(2 / 6, 4)
    assert "| under 7 d | 2 |" in metadata["Delays"]
    assert "| 1 d to 7 d | 3 | 2 | 66.7 % |" in metadata["Coverage by age"]
    assert metadata[DETAILS]["findings"]["unknown"]["first"] == [{"file": "a.csv", "row": 4, "id": "99"}]
    found = {name: passed for (name, partition), passed in later.evaluations(result).items() if partition == "a"}
    assert found == {"ids_known": False, "ids_once": False, "after_sample": True, "covered": True}


def test_a_run_of_several_label_files_counts_coverage_once_after_the_last(later: Face) -> None:
    write_labels(later, "a", "0,1,2024-01-02\n1,0,2024-01-02\n")
    write_labels(later, "b", "2,0,2024-01-02\n")
    later.tick("new_labels__tiny", later.tick("new_labels__tiny").cursor)
    result = later.materialize(LABELS, batches=("a", "b"))
    assert result.success, error_of(result)
    shown = later.materializations(*LABELS)
    assert {partition: metadata["labels"] for partition, metadata in shown.items()} == {"a": 2, "b": 1}
    assert {metadata["coverage"] for metadata in shown.values()} == {round(3 / 6, 4)}


@pytest.mark.soak("screens")
def test_many_label_files_are_ingested_in_stretches(later: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingestion_requests, "MOST_RUNS", 2)
    monkeypatch.setattr(ingestion_requests, "STRETCH", 2)
    for number, name in enumerate("abc"):
        write_labels(later, name, f"{number},1,2024-01-02\n")
    stretch, single = later.tick("new_labels__tiny", later.tick("new_labels__tiny").cursor).requests
    assert [(each.run_key, each.partition_key) for each in (stretch, single)] == [
        ("labels:tiny:0-1", None),
        ("labels:tiny:c:1", "c"),
    ]
    for request in (stretch, single):
        result = later.launch(request)
        assert result.success, error_of(result)
    assert {partition: metadata["labels"] for partition, metadata in later.materializations(*LABELS).items()} == dict.fromkeys(
        "abc", 1
    )


@pytest.mark.soak("screens")
def test_a_bad_label_file_fails_its_partition_alone(later: Face) -> None:
    write_labels(later, "a", "0,7,2024-01-02\n")
    write_labels(later, "b", "1,0,2024-01-02\n")
    cursor = later.tick("new_labels__tiny").cursor
    assert [request.partition_key for request in later.tick("new_labels__tiny", cursor).requests] == ["a", "b"]
    bad = later.materialize(LABELS, partition="a")
    assert "a.csv, row 1, column 'label': the class 7 is not in 0 .. 1 (id '0')" in error_of(bad)
    assert later.materialize(LABELS, partition="b").success
    assert later.instance.get_materialized_partitions(dg.AssetKey(LABELS)) == {"b"}
    again = later.materialize(LABELS, partition="b")
    assert again.success
    assert announce_labels(later.instance, later.platform, DATASET) == 0
