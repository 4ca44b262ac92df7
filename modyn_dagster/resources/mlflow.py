"""MLflow as a Dagster resource."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from modyn_dagster.errors import TrackingError
from modyn_dagster.settings import Settings

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from modyn_dagster.reporting.mlflow.process import TrackerProcess
    from modyn_dagster.reporting.mlflow.tracker import Tracker


class MlflowResource(dg.ConfigurableResource):  # type: ignore[type-arg]  # it gives itself, no other type
    """MLflow server that shows the runs. Nothing is imported or opened before ``client`` or ``tracker`` is called."""

    tracking_uri: str = Field(
        default="",
        description="Of MLflow's database (postgresql://…, fast) or server (http://…); default: environment MODYN_MLFLOW_URI; "
        "neither: nothing is tracked.",
    )
    ui_url: str = Field(
        default="", description="Where people open MLflow; default: environment MODYN_MLFLOW_UI_URL or port 5000 here."
    )
    artifact_root: str = Field(
        default="",
        description="Folder or URL for files of new experiments; default: mlflow in MODYN_HOME, with a server its own choice.",
    )

    @property
    def enabled(self) -> bool:
        """True if there is an MLflow to track to; logs once if not."""
        if not self._uri:
            log_tracking_off()
        return bool(self._uri)

    def client(self) -> MlflowClient:
        """A client of the configured MLflow.

        Raises:
            TrackingError: it does not answer, or tracking is off.
        """
        from modyn_dagster.reporting.mlflow.client import open_client

        if not self._uri:
            # MLflow would make itself a database in the current folder.
            raise TrackingError("no address", "tracking is off; set MODYN_MLFLOW_URI or the resource's tracking_uri")
        return open_client(self._uri)

    def aliased_models(self, pipeline: str, aliases: Sequence[str]) -> frozenset[str]:
        """Ids of the models of a pipeline with one of some aliases; ``TrackingError`` when MLflow does not answer, or is off."""
        from modyn_dagster.reporting.mlflow.registry.versions import aliased_models

        return aliased_models(self.client(), pipeline, aliases)

    def tracker(self) -> Tracker | None:
        """Tracker of runs and triggers; None when tracking is off. ``TrackingError`` when MLflow does not answer."""
        return _tracker(self._uri, self._ui, self._artifacts) if self.enabled else None

    def process(self, settings: Settings) -> TrackerProcess | None:
        """Start a tracker in a process of its own; None when tracking is off."""
        from modyn_dagster.reporting.mlflow.process import TrackerAddress, TrackerProcess

        return TrackerProcess(settings, TrackerAddress(self._uri, self._ui, self._artifacts)) if self.enabled else None

    @property
    def _uri(self) -> str:
        return self.tracking_uri or os.environ.get("MODYN_MLFLOW_URI", "")

    @property
    def _ui(self) -> str:
        return self.ui_url or os.environ.get("MODYN_MLFLOW_UI_URL") or "http://127.0.0.1:5000"

    @property
    def _artifacts(self) -> str | None:
        if self.artifact_root or self._uri.startswith("http"):
            return self.artifact_root or None
        # Where `modyn-dagster ui` lets the MLflow server keep its own.
        return str(Settings.from_environment().home / "mlflow")


@cache
def _tracker(uri: str, ui_url: str, artifact_root: str | None) -> Tracker:
    from modyn_dagster.reporting.mlflow.client import open_client
    from modyn_dagster.reporting.mlflow.tracker import Tracker

    return Tracker(open_client(uri), ui_url, artifact_root)


@cache
def log_tracking_off() -> None:
    """Log once per process that tracking is off."""
    dg.get_dagster_logger("mlflow").info("MLflow tracking is off: set MODYN_MLFLOW_URI to switch it on")
