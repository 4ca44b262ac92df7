import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from modyn_dagster.catalog.database.urls import database_url
from modyn_dagster.resources.platform import platform_of
from modyn_dagster.settings import Settings
from tests.conftest import TEMPLATE, RunningServer
from tests.dagster.face import Face, deliver, error_of
from tests.projects.tiny import DATASET, amount, batch_text, write_project

DAYS = ("day_00", "day_01", "day_02")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with one dataset and the pipeline ``by_amount``, which fires at 60 and 120 samples; no data."""
    return write_project(tmp_path / "project", [amount(every=60)])


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def face(settings: Settings, project: Path, instance: dg.DagsterInstance) -> Iterator[Face]:
    """The definitions of the project on a database of this test alone; MLflow is off."""
    with opened(Face(replace(settings, project=project), instance)) as face:
        yield face


@pytest.fixture
def days(project: Path) -> list[str]:
    """Three batches of 40 samples, delivered but not yet found."""
    return delivered(project)


@pytest.fixture
def ingested(face: Face, days: list[str]) -> list[str]:
    """The same, found by the sensor and ingested."""
    ingest(face)
    return days


@pytest.fixture(scope="module")
def replayed_face(postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Face]:
    """A project whose three batches were ingested and replayed; only to be looked at."""
    folder = tmp_path_factory.mktemp("replayed")
    project = write_project(folder / "project", [amount(every=60)])
    settings = postgres_server.settings(project, folder / "home", f"d{secrets.token_hex(4)}_")
    database = str(database_url(settings, "modyn").database)
    postgres_server.create_database(database, TEMPLATE)
    with dg.DagsterInstance.ephemeral() as instance, opened(Face(settings, instance)) as face:
        delivered(project)
        ingest(face)
        result = face.materialize(("by_amount", "replay"), batches=(DAYS[0], DAYS[-1]))
        assert result.success, error_of(result)
        yield face
    postgres_server.drop_database(database)


@contextmanager
def opened(face: Face) -> Iterator[Face]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MODYN_MLFLOW_URI", raising=False)
        yield face
    face.platform.close()
    platform_of.cache_clear()


def delivered(project: Path) -> list[str]:
    for day, key in enumerate(DAYS):
        deliver(project, key, batch_text(day))
    return list(DAYS)


def ingest(face: Face) -> None:
    face.tick("new_data__tiny", face.tick("new_data__tiny").cursor)
    result = face.materialize((DATASET, "samples"), batches=(DAYS[0], DAYS[-1]))
    assert result.success, error_of(result)
