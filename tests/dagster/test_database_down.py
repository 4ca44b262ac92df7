"""With the database down definitions load, and whatever runs says what is down and how to start it."""

from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from modyn_dagster.assets.specs import add_partitions, batches_of, triggers_of
from modyn_dagster.settings import Settings
from tests.dagster.face import Face, error_of
from tests.projects.tiny import DATASET

SENSORS = ("new_data__tiny", "triggering__by_amount")
ASSETS = {
    (DATASET, "samples"): "day_00",
    ("by_amount", "replay"): "day_00",
    ("by_amount", "training_set"): "000001-000000",
    ("by_amount", "model"): "000001-000000",
    ("by_amount", "evaluation"): "000001-000000",
    (DATASET, "comparison"): None,
}


@pytest.fixture
def down(project: Path, home: Path, instance: dg.DagsterInstance) -> Face:
    """A face whose Postgres is not there."""
    add_partitions(instance, batches_of(DATASET), ["day_00"])
    add_partitions(instance, triggers_of("by_amount"), ["000001-000000"])
    address = "postgresql://me:top-secret@127.0.0.1:1/postgres"
    return Face(Settings(project, home, postgres_url=address, max_wait=0), instance)


def test_the_definitions_load(down: Face) -> None:
    dg.Definitions.validate_loadable(down.defs)


@pytest.mark.parametrize("sensor", SENSORS)
def test_a_tick_is_skipped_with_the_command_that_helps(down: Face, sensor: str) -> None:
    ticked = down.tick(sensor, None)
    assert ticked.requests == []
    assert "Postgres at me@127.0.0.1:1/modyn does not answer" in str(ticked.skipped)
    assert "`modyn-dagster db start`" in str(ticked.skipped)
    assert "top-secret" not in str(ticked.skipped)


@pytest.mark.parametrize("asset", ASSETS, ids="/".join)
def test_a_run_fails_with_the_command_that_helps(down: Face, asset: tuple[str, str]) -> None:
    error = error_of(down.materialize(asset, partition=ASSETS[asset]))
    assert "does not answer" in error
    assert "`modyn-dagster db start`" in error
    assert "top-secret" not in error


@pytest.mark.parametrize("sensor", SENSORS)
def test_an_absent_schema_is_named_with_its_command(face: Face, sensor: str) -> None:
    absent = Face(replace(face.settings, database_prefix="nobody_made_"), face.instance)
    assert "`modyn-dagster db upgrade`" in str(absent.tick(sensor).skipped)


def test_an_embedded_server_that_never_started_is_named_with_its_command(down: Face, home: Path) -> None:
    never = Face(replace(down.settings, postgres_url=None), down.instance)
    assert "`modyn-dagster db start`" in str(never.tick("new_data__tiny").skipped)
