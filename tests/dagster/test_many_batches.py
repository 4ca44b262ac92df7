"""Runs that ingest several batches of a backlog, and batches whose events a kill has swallowed."""

from collections import Counter

import dagster as dg
import pytest

from modyn_dagster.ingestion.history import import_history
from modyn_dagster.sensors import ingestion_requests
from tests.dagster.face import Face, Ticked, deliver, error_of
from tests.dagster.test_production import NEW_DATA, states, unfinished_run
from tests.projects.tiny import DATASET

SAMPLES = dg.AssetKey([DATASET, "samples"])
STRETCH = {"modyn/dataset": DATASET, "modyn/batches": "0-1"}


@pytest.fixture(autouse=True)
def _small_backlogs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three batches are a backlog, and two of them a stretch."""
    monkeypatch.setattr(ingestion_requests, "MOST_RUNS", 2)
    monkeypatch.setattr(ingestion_requests, "STRETCH", 2)


def asked(face: Face, cursor: str | None = None) -> Ticked:
    return face.tick(NEW_DATA, cursor or face.tick(NEW_DATA).cursor)


def times_shown(face: Face) -> Counter[str | None]:
    return Counter(record.partition_key for record in face.instance.fetch_materializations(SAMPLES, limit=100).records)


def test_a_backlog_is_ingested_in_stretches_and_every_batch_is_shown_once(face: Face, days: list[str]) -> None:
    ticked = asked(face)
    stretch, single = ticked.requests
    assert (stretch.run_key, stretch.partition_key) == ("tiny:0-1", None)
    assert (single.run_key, single.partition_key) == ("tiny:day_02:1", "day_02")
    for request in (stretch, single):
        result = face.launch(request)
        assert result.success, error_of(result)
        checked = {partition for _, partition in face.evaluations(result) if partition}
        assert checked == ({"day_00", "day_01"} if request is stretch else {"day_02"})
    assert states(face) == dict.fromkeys(days, "ingested")
    assert face.tick(NEW_DATA, ticked.cursor).requests == []
    assert times_shown(face) == Counter(days)


def test_a_batch_of_a_stretch_is_shown_before_the_next_is_ingested(face: Face, days: list[str]) -> None:
    stretch, _ = asked(face).requests
    logged = list(face.instance.all_logs(face.launch(stretch).run_id))
    shown = [n for n, entry in enumerate(logged) if entry.dagster_event_type is dg.DagsterEventType.ASSET_MATERIALIZATION]
    [second] = [n for n, entry in enumerate(logged) if entry.user_message.startswith("batch day_01: ")]
    assert shown[0] < second < shown[1]


def test_a_stretch_goes_on_behind_a_bad_batch(face: Face, days: list[str]) -> None:
    deliver(face.settings.project, "day_00", "time,x,y,label\nno time,1,2,0\n")
    stretch, _ = asked(face).requests
    result = face.launch(stretch)
    assert "day_00.csv" in error_of(result)
    assert states(face) == {"day_00": "failed", "day_01": "ingested", "day_02": "open"}
    assert times_shown(face) == Counter(["day_01"])


def test_a_stretch_under_way_is_not_asked_for_and_one_that_ended_early_is_asked_for_batch_by_batch(
    face: Face, days: list[str]
) -> None:
    cursor = face.tick(NEW_DATA).cursor
    run = unfinished_run(face, STRETCH)
    assert [request.partition_key for request in asked(face, cursor).requests] == ["day_02"]
    face.instance.report_run_canceled(run)
    assert [request.partition_key for request in asked(face, cursor).requests] == days


def test_a_batch_whose_events_a_kill_swallowed_is_shown_by_the_next_tick(face: Face, days: list[str]) -> None:
    platform = face.platform
    import_history(platform.engine, platform.home, platform.project.datasets[DATASET], platform.project.root_of(DATASET))
    ticked = face.tick(NEW_DATA)
    assert times_shown(face) == Counter(days)
    face.tick(NEW_DATA, ticked.cursor)
    face.tick(NEW_DATA)
    assert times_shown(face) == Counter(days)
