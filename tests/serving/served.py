"""Pipelines whose models are registered in a real MLflow, for tests of serving."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt
import pandas as pd
import pytest
from mlflow import MlflowClient

from modyn_dagster.catalog.results.models import ModelRow, list_models
from modyn_dagster.data.samples import Samples
from modyn_dagster.keys import KeyRange
from modyn_dagster.pipeline.models import predictor_of
from modyn_dagster.reporting.mlflow.client import open_client
from modyn_dagster.reporting.mlflow.tracker import Tracker
from tests.conftest import RunningServer
from tests.pipeline.world import World, make_world
from tests.projects.tiny import DATASET, Content


@dataclass
class Served:
    """A world that MLflow shows; ``mlflow`` is the address of its database."""

    world: World
    mlflow: str
    artifacts: Path

    @property
    def client(self) -> MlflowClient:
        return open_client(self.mlflow)

    def live(self, pipeline: str) -> None:
        """Train whatever is due, and show the models as versions of the pipeline."""
        self.world.live_until_idle(pipeline)
        run = self.world.run(pipeline, "live")
        tracker = Tracker(self.client, "http://127.0.0.1:5000", str(self.artifacts))
        with pytest.MonkeyPatch.context() as patch:
            # The record of a version names the store as this process sees it.
            patch.setenv("MODYN_HOME", str(self.world.settings.home))
            tracker.sync_all(self.world.platform.engine, run)

    def models(self, pipeline: str) -> list[ModelRow]:
        """Models of the live run, in the order of their versions."""
        with self.world.platform.transaction() as conn:
            return list_models(conn, self.world.run(pipeline, "live").id)

    def samples(self, n: int = 64) -> Samples:
        """The first samples of the stream, in one block."""
        view = self.world.platform.view(DATASET)
        first = view.batches[0]
        return view.reader.read(view.keys_on(0, KeyRange(-1, view.last_key_of(first.ordinal)))[:n])

    def evaluated(self, pipeline: str, model: ModelRow, samples: Samples) -> npt.NDArray[Any]:
        """Raw outputs as evaluation computes them."""
        predictor = predictor_of(self.world.platform, self.world.run(pipeline, "live"), model, self.world.platform.view(DATASET))
        try:
            return predictor(samples)
        finally:
            predictor.close()


@contextmanager
def four_days(server: RunningServer, mlflow: str, folder: Path, content: Content) -> Iterator[Served]:
    """A pipeline over four days, with a catalog of its own and its files below a folder."""
    (home := folder / "home").mkdir()
    settings = server.settings(folder, home, f"t{secrets.token_hex(4)}_")
    database = f"{settings.database_prefix}modyn"
    server.create_database(database, "template_modyn")
    world = make_world(settings, folder / "project", [content])
    try:
        world.deliver(range(4))
        yield Served(world, mlflow, folder / "artifacts")
    finally:
        world.close()
        server.drop_database(database)


def frame(samples: Samples) -> pd.DataFrame:
    """Columns of samples as a DataFrame; sub-arrays are lists."""
    return pd.DataFrame({name: list(column) if column.ndim > 1 else column for name, column in samples.columns.items()})
