"""Records and weights of the models that registered versions name: from MLflow's tags and the model store."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import parse_qs, urlsplit

from modyn_dagster.errors import (
    CorruptFile,
    NotReproducible,
    StorageError,
    TrackingError,
    UnknownModel,
    VersionUnavailable,
    WeightsNotStored,
    without_secrets,
)
from modyn_dagster.model_store import ModelStore
from modyn_dagster.model_store.location import models_options, models_root
from modyn_dagster.reporting.mlflow.client import address_of, open_client, tracking_errors
from modyn_dagster.reporting.mlflow.registry.records import SERVING, version_source
from modyn_dagster.reporting.mlflow.registry.withdrawn import DELETED_SAMPLES
from modyn_dagster.settings import Settings
from modyn_dagster.storage import local_folder
from modyn_dagster.training.predictor_record import PredictorRecord

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from torch import Tensor

SCHEME: Final = "modyn-model"
#: Folder or URL of the model store for a process that finds it elsewhere than the registering one.
STORE_VARIABLE: Final = "MODYN_MODELS"
_REGISTERED: Final = re.compile(r"models:/(?P<name>[^/@']+)(?:@(?P<alias>[^/@']+)|/(?P<number>\d+))")


@dataclass(frozen=True, slots=True)
class ModelUri:
    """Source of a version: id of its model, and registered name and trigger, by which its record is found."""

    model: str
    name: str | None
    trigger: str | None

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Read ``modyn-model:///<id>?name=…&trigger=…``; ``VersionUnavailable`` for anything else."""
        parts = urlsplit(uri)
        fields = {name: values[0] for name, values in parse_qs(parts.query).items()}
        model = parts.path.strip("/")
        if parts.scheme != SCHEME or parts.netloc or not model.isalnum() or any("'" in text for text in fields.values()):
            raise VersionUnavailable(without_secrets(uri), f"is not {SCHEME}:///<id of a model>")
        return cls(model, fields.get("name"), fields.get("trigger"))

    def __str__(self) -> str:
        return version_source(self.name or "", self.trigger or "", self.model)


def find_record(uri: ModelUri, client: MlflowClient) -> PredictorRecord:
    """Record of a version, from its tag.

    Raises:
        VersionUnavailable: no version has this source, its samples were deleted, or it has no record.
        MlflowException: MLflow does not answer.
    """
    if uri.name is None:
        for version in client.search_model_versions(f"source_path = '{SCHEME}:///{uri.model}'"):
            _require_served(f"model {uri.model[:12]}", version.tags)
        return stored_record(uri.model)
    versions = client.search_model_versions(f"name = '{uri.name}' AND source_path = '{uri}'")
    title = f"{uri.name}, trigger {uri.trigger}"
    if not versions:
        raise VersionUnavailable(title, "MLflow has no version with this model any more; the next sync registers it again")
    tags: Mapping[str, str] = versions[0].tags
    _require_served(title, tags)
    if SERVING not in tags:
        raise VersionUnavailable(title, f"its version has no tag {SERVING}; serve a folder of `modyn-dagster model export`")
    try:
        content = json.loads(tags[SERVING])
    except ValueError as error:
        raise VersionUnavailable(title, f"its tag {SERVING} is damaged: {error}") from error
    return PredictorRecord.from_json(content, source=f"{title}: tag {SERVING}")


def _require_served(title: str, tags: Mapping[str, str]) -> None:
    if DELETED_SAMPLES in tags:
        raise VersionUnavailable(title, f"its model saw deleted samples ({tags[DELETED_SAMPLES]}) and is not served")


@contextmanager
def registry_errors(name: str, uri: str) -> Iterator[None]:
    """Turn errors of the MLflow at ``uri`` into ``VersionUnavailable`` of a name."""
    try:
        with tracking_errors(address_of(uri)):
            yield
    except TrackingError as error:
        raise VersionUnavailable(name, f"MLflow at {error.address}: {error.reason}") from error


def registered_record(text: str, uri: str) -> PredictorRecord:
    """Record of ``models:/<name>@<alias>`` or ``models:/<name>/<number>`` in the MLflow at ``uri``.

    Raises:
        VersionUnavailable: the text is none of both, MLflow does not answer, or the version is not there.
    """
    match = _REGISTERED.fullmatch(text)
    if match is None:
        raise VersionUnavailable(text, "must be models:/<name>@<alias> or models:/<name>/<number>")
    with registry_errors(text, uri):
        client = open_client(uri)
        if match["alias"] is not None:
            version = client.get_model_version_by_alias(match["name"], match["alias"])
        else:
            version = client.get_model_version(match["name"], match["number"])
        return find_record(ModelUri.parse(str(version.source)), client)


def stored_record(model: str, store: ModelStore | None = None) -> PredictorRecord:
    """Record made of the architecture in the model store, for a model that no version names.

    Classes are numbers then, and columns are numbers or texts. ``UnknownModel``; ``VersionUnavailable`` for a model that was
    saved without the architecture of a pipeline's.
    """
    opened = open_store(None) if store is None else store
    try:
        arguments = (opened.info(model).architecture or {}).get("args", {})
    except UnknownModel as error:
        rule = f"{error}; it was deleted, or {STORE_VARIABLE} must name another store"
        raise VersionUnavailable(f"model {model[:12]}", rule) from error
    architecture = arguments.get("architecture", {})
    if "n_outputs" not in architecture:
        raise VersionUnavailable(model, f"{opened.root}: was saved without the architecture of a pipeline's model")
    parts = {name: part for name, part in architecture.items() if name not in ("label", "label_transform")}
    root = str(opened.root)
    return PredictorRecord(f"model {model[:12]}", model, root, parts, {}, (), parts["task"], threads=1, device="cpu")


def open_store(recorded: str | None) -> ModelStore:
    """Open the store that this process is told of, else the recorded one, else that of its project."""
    settings = Settings.from_environment()
    root = os.environ.get(STORE_VARIABLE) or recorded or models_root(settings)
    return ModelStore(root, storage_options=models_options(settings, root))


def load_weights(record: PredictorRecord, *, retrain: bool = False, store: ModelStore | None = None) -> dict[str, Tensor]:
    """Verified weights of a model.

    Raises:
        VersionUnavailable: the store or the model is not there, or the store cannot be read.
        CorruptFile: a tensor is not what was saved.
        WeightsNotStored: only the recipe of the model is stored, and ``retrain`` is False.
        NotReproducible: training again would give another model.
    """
    opened = open_store(record.store) if store is None else store
    folder = local_folder(str(opened.root))
    if folder is not None and not folder.is_dir():
        rule = f"its model store {opened.root} is not there; {STORE_VARIABLE} names the place of the store for this process"
        raise VersionUnavailable(record.name, rule)
    try:
        return opened.load(record.model, retrain=retrain)
    except UnknownModel as error:
        raise VersionUnavailable(record.name, f"{error}; it was deleted, or {STORE_VARIABLE} must name another store") from error
    except (CorruptFile, NotReproducible, WeightsNotStored):
        raise
    except (OSError, StorageError) as error:
        # Every other error is one of the place: keys that it refuses, or no answer.
        raise VersionUnavailable(record.name, f"its model store {opened.root} cannot be read: {error}") from error
