"""A pipeline whose models MLflow shows: trained once for all tests, which read it and move aliases of their own."""

import secrets
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

with warnings.catch_warnings():
    # MLflow warns of its own type hints when this module is first imported.
    warnings.simplefilter("ignore", UserWarning)
    import mlflow.pyfunc  # noqa: F401

from tests.projects.tiny import amount
from tests.serving.served import Served, four_days


@pytest.fixture(autouse=True)
def project(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Project of the process that serves, whose specs may name functions of the tests; no other code may run for a model."""
    folder = tmp_path_factory.mktemp("serving")
    (folder / "project.yaml").write_text("code: {packages: [tests]}\n", encoding="utf-8")
    monkeypatch.setenv("MODYN_PROJECT", str(folder))
    monkeypatch.setenv("MODYN_HOME", str(folder / ".modyn"))
    return folder


@pytest.fixture(scope="session")
def served(postgres_server: Any, mlflow_uri: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A pipeline over four days, under a name that no other test has."""
    content = amount(f"p_{secrets.token_hex(4)}", every=60)
    with four_days(postgres_server, mlflow_uri, tmp_path_factory.mktemp("served"), content) as served:
        yield served


@pytest.fixture(scope="session")
def pipeline(served: Served) -> str:
    """Name of the pipeline, whose models are trained and registered."""
    [name] = served.world.platform.project.pipelines
    served.live(name)
    return name
