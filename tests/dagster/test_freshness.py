"""No data for too long: a check that says so once, and says when data arrive again."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa
import yaml

from modyn_dagster.catalog.batches import batch
from modyn_dagster.pipeline.checks import freshness
from tests.dagster.face import Face, deliver, error_of, ingest_day
from tests.projects.tiny import DATASET, batch_text

SENSOR = "freshness__tiny"
SAMPLES = dg.AssetKey([DATASET, "samples"])


@pytest.fixture
def project(project: Path) -> Path:
    """As ever, and its dataset wants a batch a day."""
    path = project / "datasets" / f"{DATASET}.yaml"
    path.write_text(path.read_text() + yaml.safe_dump({"freshness": {"maximum": "1d"}}))
    return project


def said(face: Face, cursor: str | None) -> tuple[list[dg.AssetCheckEvaluation], str | None]:
    """Message and cursor of a tick."""
    context = dg.build_sensor_context(face.instance, cursor, definitions=face.defs, resources=face.defs.resources)
    with context:
        result = face.defs.resolve_sensor_def(SENSOR)(context)
    assert isinstance(result, dg.SensorResult)
    return list(result.asset_events), result.cursor  # type: ignore[arg-type]  # the result's type is wider than what comes


def age(face: Face, **since: float) -> None:
    """Move the arrival of all batches into the past."""
    with face.platform.transaction() as conn:
        conn.execute(sa.update(batch).values(created_at=sa.func.now() - timedelta(**since)))


def test_it_says_once_that_data_stopped_and_once_that_they_arrive_again(face: Face, days: list[str]) -> None:
    ingest_day(face, "day_00")
    [fresh], cursor = said(face, None)
    assert (fresh.passed, fresh.asset_key, fresh.check_name) == (True, SAMPLES, "fresh")
    assert said(face, cursor) == ([], cursor)
    age(face, days=2, hours=3)
    [stale], cursor = said(face, cursor)
    assert (stale.passed, stale.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert str(stale.description) == "no data for 2 d 3 h: 2 d 3 h since batch day_00 arrived, at most 1d are fine"
    age(face, days=4)
    assert said(face, cursor) == ([], cursor)
    deliver(face.settings.project, "day_03", batch_text(3))
    ingest_day(face, "day_03")
    [again], _ = said(face, cursor)
    assert again.passed


def test_it_can_be_looked_at_by_hand(face: Face, days: list[str]) -> None:
    ingest_day(face, "day_00")
    age(face, days=2)
    job = face.defs.resolve_implicit_global_asset_job_def()
    checks = {dg.AssetCheckKey(SAMPLES, "fresh")}
    selected = job.get_subset(asset_selection=set(), asset_check_selection=checks)
    result = selected.execute_in_process(instance=face.instance, raise_on_error=False)
    assert result.success, error_of(result)
    [evaluation] = result.get_asset_check_evaluations()
    assert (evaluation.passed, evaluation.metadata["newest_batch"]) == (False, dg.MetadataValue.text("day_00"))


def test_a_batch_that_failed_has_brought_no_data(face: Face, days: list[str]) -> None:
    ingest_day(face, "day_00")
    age(face, days=2)
    deliver(face.settings.project, "day_03", "time,x,y,label\nno time,1,2,0\n")
    ingest_day(face, "day_03")
    assert [row.state for row in face.batches(DATASET)] == ["ingested", "open", "open", "failed"]
    assert not freshness(face.platform, DATASET).passed


def test_the_limit_itself_is_fine_and_before_the_first_batch_the_datasets_age_counts(face: Face) -> None:
    now = datetime.now(UTC)
    assert freshness(face.platform, DATASET).description.startswith("0 s since the dataset was made")
    later = freshness(face.platform, DATASET, now + timedelta(days=1, seconds=60))
    assert not later.passed
    assert "no batch ever arrived" in later.description
    made = datetime.fromisoformat(str(later.metadata["arrived"]))
    assert freshness(face.platform, DATASET, made + timedelta(days=1)).passed
    assert not freshness(face.platform, DATASET, made + timedelta(days=1, microseconds=1)).passed
    assert freshness(face.platform, DATASET, made - timedelta(hours=1)).passed, "clocks differ"


@pytest.mark.soak("screens")
def test_a_dataset_that_does_not_ask_for_it_has_neither_check_nor_sensor(replayed_face: Face) -> None:
    assert SENSOR not in {sensor.name for sensor in replayed_face.defs.sensors or []}
    assert not replayed_face.defs.asset_checks
