"""MLflow as a Dagster resource."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar

import dagster as dg
from pydantic import Field, PrivateAttr

from modyn_dagster.bounded_call import BoundedCall, StillGoing
from modyn_dagster.errors import TrackingError, TrackingSilence
from modyn_dagster.private_files import secret_setting
from modyn_dagster.settings import Settings

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from modyn_dagster.reporting.mlflow.process import TrackerAddress, TrackerProcess
    from modyn_dagster.reporting.mlflow.tracker import Tracker

T = TypeVar("T")

#: Called by work that has got further.
Progress = Callable[[], None]

_SHARED: Final[ContextVar[TrackerProcess | None]] = ContextVar("shared tracker", default=None)


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

    _silence: TrackingSilence | None = PrivateAttr(default=None)

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

        timeout = Settings.from_environment().mlflow_timeout
        return self.within(timeout, lambda _progress: aliased_models(self.client(), pipeline, aliases))

    def tracker(self) -> Tracker:
        """Tracker of runs and triggers; ``TrackingError`` when MLflow does not answer."""
        return _tracker(self._uri, self._ui, self._artifacts)

    @property
    def is_silent(self) -> bool:
        """True once something ``within`` a time had no answer; a Dagster run has a resource of its own."""
        return self._silence is not None

    def within(self, seconds: float, work: Callable[[Progress], T]) -> T:
        """Result of something that asks MLflow, and calls its argument whenever it has got further.

        ``TrackingError`` after a time without either, and from then on at once.
        """
        from modyn_dagster.reporting.mlflow.client import address_of

        if self._silence is not None:
            raise self._silence
        last = time.monotonic()

        def progress() -> None:
            nonlocal last
            last = time.monotonic()

        call = BoundedCall("mlflow", lambda: work(progress))
        while (left := last + seconds - time.monotonic()) > 0:
            with suppress(StillGoing):
                return call.result(left)
        # Whatever the thread still shows is right, since every sync may be repeated.
        self._silence = TrackingSilence(address_of(self._uri), seconds)
        raise self._silence

    @contextmanager
    def process(self, settings: Settings) -> Iterator[TrackerProcess | None]:
        """Run a tracker in a process of its own, or in the one that runs share; None when tracking is off."""
        from modyn_dagster.reporting.mlflow.process import TrackerProcess

        shared = self.shared_process()
        if shared is not None or not self.enabled:
            yield shared
            return
        with TrackerProcess(settings, self._address) as process:
            yield process

    def shared_process(self) -> TrackerProcess | None:
        """Process that the runs of this process share (``share_tracker``), if it shows them in this MLflow."""
        shared = _SHARED.get()
        return shared if shared is not None and shared.is_alive and shared.address == self._address else None

    @property
    def _address(self) -> TrackerAddress:
        from modyn_dagster.reporting.mlflow.process import TrackerAddress

        return TrackerAddress(self._uri, self._ui, self._artifacts)

    @property
    def _uri(self) -> str:
        return self.tracking_uri or secret_setting(os.environ, "MODYN_MLFLOW_URI") or ""

    @property
    def _ui(self) -> str:
        return self.ui_url or os.environ.get("MODYN_MLFLOW_UI_URL") or "http://127.0.0.1:5000"

    @property
    def _artifacts(self) -> str | None:
        if self.artifact_root or self._uri.startswith("http"):
            return self.artifact_root or None
        # Where `modyn-dagster ui` lets the MLflow server keep its own.
        return str(Settings.from_environment().home / "mlflow")


@contextmanager
def share_tracker(settings: Settings) -> Iterator[None]:
    """Start a tracker's process at once, which all runs of the block that this process executes share; it ends with the block.

    It tells the MLflow of the environment; a run that has another one starts a process of its own.
    """
    with MlflowResource().process(settings) as process:
        token = _SHARED.set(process)
        try:
            yield
        finally:
            _SHARED.reset(token)


@cache
def _tracker(uri: str, ui_url: str, artifact_root: str | None) -> Tracker:
    from modyn_dagster.reporting.mlflow.client import open_client
    from modyn_dagster.reporting.mlflow.tracker import Tracker

    return Tracker(open_client(uri), ui_url, artifact_root)


@cache
def log_tracking_off() -> None:
    """Log once per process that tracking is off."""
    dg.get_dagster_logger("mlflow").info("MLflow tracking is off: set MODYN_MLFLOW_URI to switch it on")
