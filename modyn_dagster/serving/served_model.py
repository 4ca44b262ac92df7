"""Predictor that follows an alias in MLflow: loaded once, reloaded on request, and stamped with its version."""

from __future__ import annotations

import os
import tempfile
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from modyn_dagster.errors import VersionUnavailable
from modyn_dagster.private_files import secret_setting
from modyn_dagster.reporting.mlflow.client import open_client
from modyn_dagster.reporting.mlflow.registry.aliases import CHAMPION, LIVE
from modyn_dagster.reporting.mlflow.registry.versions import MODEL
from modyn_dagster.serving.model_folder import load_folder
from modyn_dagster.serving.model_predictor import ModelPredictor, Output
from modyn_dagster.serving.stored_models import registry_errors

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import numpy.typing as npt
    from mlflow import MlflowClient


@dataclass(frozen=True, slots=True)
class Version:
    """Version of a registered model.

    Attributes:
        name: registered name, that of the pipeline.
        number: number of the version in MLflow.
        model: id in the model store; empty for a version that was registered by hand.
    """

    name: str
    number: int
    model: str

    @property
    def etag(self) -> str:
        """Text that changes with the version, in the form of HTTP's ETag."""
        return f'"{self.name}/{self.number}-{self.model[:16]}"'


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted values as ``ModelPredictor.predict`` returns them, and the version that predicted all of them.

    Attributes:
        values: of the samples, in their order.
        version: of the model.
        classes: names of its classes in the order of the columns; none where classes are numbers, or of a regression.
    """

    values: npt.NDArray[Any]
    version: Version
    classes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Loaded:
    predictor: ModelPredictor
    version: Version


class ServedModel:
    """Model behind an alias. Threads may predict while one reloads: each prediction is of one version.

    Args:
        client: client of MLflow.
        name: registered name.
        alias: alias to follow.
        device: device of predictions; default: that of the training.
        threads: number of threads of torch; default: that of the evaluation.

    Raises:
        VersionUnavailable: MLflow does not answer, or the alias, its version, its model or the store is not there.
        ConfigError: user code of the model is missing in this process, or the device is.
    """

    def __init__(
        self, client: MlflowClient, name: str, alias: str, *, device: str | None = None, threads: int | None = None
    ) -> None:
        self.name, self.alias = name, alias
        self._client, self._device, self._threads = client, device, threads
        self._reloading = threading.Lock()
        self._loaded = self._load(self._resolve())

    @property
    def version(self) -> Version:
        """Version that predicts now."""
        return self._loaded.version

    @property
    def predictor(self) -> ModelPredictor:
        """Predictor of the version that predicts now."""
        return self._loaded.predictor

    def predict(self, data: Any, output: Output = "prediction") -> Prediction:
        """Predict as ``ModelPredictor.predict`` does, with one version, which is part of the result."""
        # Read once: a reload in between changes what the next call reads.
        loaded = self._loaded
        return Prediction(loaded.predictor.predict(data, output), loaded.version, loaded.predictor.record.classes)

    def reload(self) -> bool:
        """Follow the alias; True if another version predicts from now on.

        The version is loaded beside the present one and then takes its place in one step. Where it cannot be loaded, the error
        is raised and the present version goes on.
        """
        with self._reloading:
            version = self._resolve()
            if version == self._loaded.version:
                return False
            self._loaded = self._load(version)
            return True

    def _resolve(self) -> Version:
        with self._errors():
            version = self._client.get_model_version_by_alias(self.name, self.alias)
        return Version(self.name, int(version.version), version.tags.get(MODEL, ""))

    def _load(self, version: Version) -> _Loaded:
        # Imported here: importing it takes longer than importing torch, and only loading needs it.
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        with tempfile.TemporaryDirectory(prefix="modyn-model-") as folder, self._errors():
            uri = self._client.get_model_version_download_uri(version.name, str(version.number))
            address = self._client.tracking_uri
            repository = get_artifact_repository(uri, tracking_uri=address, registry_uri=address)
            path: str = repository.download_artifacts("", folder)  # type: ignore[no-untyped-call]  # MLflow has no types
            return _Loaded(load_folder(path, device=self._device, threads=self._threads), version)

    def _errors(self) -> AbstractContextManager[None]:
        return registry_errors(f"models:/{self.name}@{self.alias}", self._client.tracking_uri)


def load(
    pipeline: str,
    alias: str = CHAMPION,
    *,
    tracking_uri: str | None = None,
    device: str | None = None,
    threads: int | None = None,
) -> ServedModel:
    """Load the model of a pipeline that has an alias.

    Args:
        pipeline: name of the pipeline; ``<name>.replay`` for its replays.
        alias: alias in MLflow.
        tracking_uri: address of MLflow; default: MODYN_MLFLOW_URI, else MLFLOW_TRACKING_URI.
        device: device of predictions; default: that of the training.
        threads: number of threads of torch; default: that of the evaluation.

    Raises:
        VersionUnavailable: MLflow does not answer, or the alias, its version, its model or the store is not there.
        ConfigError: user code of the model is missing in this process, or the device is.
    """
    uri = tracking_uri or secret_setting(os.environ, "MODYN_MLFLOW_URI") or os.environ.get("MLFLOW_TRACKING_URI")
    name = f"models:/{pipeline}@{alias}"
    if not uri:
        raise VersionUnavailable(name, "set MODYN_MLFLOW_URI or MLFLOW_TRACKING_URI, or give tracking_uri=…")
    with registry_errors(name, uri):
        client = open_client(uri)
    return ServedModel(client, pipeline, alias, device=device, threads=threads)


def load_live(pipeline: str, **options: Any) -> ServedModel:
    """Load the live model of a pipeline: the newest or the champion, as its spec says; options and errors as for ``load``."""
    return load(pipeline, LIVE, **options)


def load_champion(pipeline: str, **options: Any) -> ServedModel:
    """Load the champion of a pipeline; options and errors as for ``load``."""
    return load(pipeline, CHAMPION, **options)
