from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from modyn_dagster.resources.platform import platform_of
from modyn_dagster.settings import Settings
from tests.dagster.face import Face, deliver
from tests.projects.tiny import amount, batch_text, write_project


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with one dataset and the pipeline ``by_amount``, without data."""
    return write_project(tmp_path / "project", [amount()])


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def face(settings: Settings, project: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> Iterator[Face]:
    """The definitions of the project on a database of this test alone; MLflow is off."""
    monkeypatch.delenv("MODYN_MLFLOW_URI", raising=False)
    chosen = replace(settings, project=project)
    yield Face(chosen, instance)
    platform_of(chosen).close()
    platform_of.cache_clear()


@pytest.fixture
def days(project: Path) -> list[str]:
    """Five batches of 40 samples, delivered but not yet found."""
    keys = [f"day_{day:02d}" for day in range(5)]
    for day, key in enumerate(keys):
        deliver(project, key, batch_text(day))
    return keys
