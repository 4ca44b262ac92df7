"""Files of pretrained weights below the project: safetensors alone, and folders of transformers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError, safe_open
from torch import Tensor

from modyn_dagster.errors import ConfigError, MissingExtra, StorageError
from modyn_dagster.imports import is_installed
from modyn_dagster.spec.learning.libraries import TransformersSpec
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.storage import inside
from modyn_dagster.training.models.fine_tuning.report import Shape, renamed
from modyn_dagster.training.trainers.stored.pickles import pickle_in

_FIELD: Final = "training.pretrained.weights"
#: Bytes that are searched for a pickle when a file turns out not to be safetensors.
_SEARCHED: Final = 64 << 20
#: Files of a repository that are read.
_PATTERNS: Final = ("config.json", "*.safetensors", "*.safetensors.index.json")


def with_config(spec: TrainingSpec, project: Path, *, source: str, download: bool = True) -> TrainingSpec:
    """Training with the configuration of its network, read from its folder or repository; others stay as they are.

    Raises:
        ConfigError: there is no such folder, or it has no configuration.
    """
    model = spec.model
    if not isinstance(model, TransformersSpec) or model.config is not None:
        return spec
    path = _folder_of(model, project, source, download=download) / "config.json"
    field, place = _field_of(model), str(model.place)
    try:
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(source, field, place, "has no config.json") from None
    except ValueError as error:
        raise ConfigError(source, field, place, f"config.json is no JSON: {error}") from error
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise ConfigError(source, field, place, "config.json names no `model_type`")
    return spec.model_copy(update={"model": model.configured(config)})


def pretrained_files(spec: TrainingSpec, project: Path, *, source: str, download: bool = True) -> list[Path]:
    """Files of the pretrained weights that a training begins with, in the order of their names; none for fresh weights.

    Raises ``ConfigError`` for a file that is missing or outside the project, and for a folder without safetensors.
    """
    model = spec.model
    if isinstance(model, TransformersSpec) and model.place is not None:
        folder = _folder_of(model, project, source, download=download)
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            others = ", ".join(sorted(path.name for path in folder.glob("*.bin"))) or "none"
            rule = f"has no weights as safetensors (others: {others}); pickles are not read: convert them"
            raise ConfigError(source, _field_of(model), str(model.place), rule)
        return files
    if spec.pretrained is None or spec.pretrained.weights is None:
        return []
    name = spec.pretrained.weights
    try:
        path = inside(project, name)
    except StorageError as error:
        raise ConfigError(source, _FIELD, name, "must be a file below the project's folder") from error
    if not path.is_file():
        raise ConfigError(source, _FIELD, name, f"there is no file {path}")
    return [path]


def read_pretrained(spec: TrainingSpec, project: Path, *, source: str) -> dict[str, Tensor] | None:
    """Pretrained weights by their names in the model; None for a training with fresh ones."""
    files = pretrained_files(spec, project, source=source)
    return {_name(spec, name): tensor for name, tensor in _read(files, spec, source).items()} if files else None


def read_weights_file(spec: TrainingSpec, project: Path, *, source: str) -> dict[str, Tensor] | None:
    """Tensors of `pretrained.weights` by their names in the file; None without such a file."""
    if spec.pretrained is None or spec.pretrained.weights is None:
        return None
    return _read(pretrained_files(spec, project, source=source), spec, source)


def _read(files: list[Path], spec: TrainingSpec, source: str) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for path in files:
        with _opened(path, spec, source) as file:
            tensors |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    return tensors


def pretrained_shapes(spec: TrainingSpec, files: list[Path], *, source: str) -> dict[str, Shape]:
    """Shapes of pretrained weights by their names in the model, without reading them."""
    shapes: dict[str, Shape] = {}
    for path in files:
        with _opened(path, spec, source) as file:
            found = {_name(spec, name): tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            shapes |= found
    return shapes


def field_and_place(spec: TrainingSpec) -> tuple[str, str]:
    """Field of a spec that names the weights, and its value, for errors."""
    if isinstance(spec.model, TransformersSpec):
        return _field_of(spec.model), str(spec.model.place)
    return _FIELD, str(None if spec.pretrained is None else spec.pretrained.weights)


def _name(spec: TrainingSpec, name: str) -> str:
    names: Mapping[str, str] = {} if spec.pretrained is None else spec.pretrained.rename
    return renamed(names, name)


def _field_of(model: TransformersSpec) -> str:
    return f"training.model.{'folder' if model.id is None else 'id'}"


def _folder_of(model: TransformersSpec, project: Path, source: str, *, download: bool) -> Path:
    if model.id is not None:
        return _repository(model.id, str(model.revision), source, download=download)
    try:
        folder = inside(project, str(model.folder))
    except StorageError as error:
        raise ConfigError(source, _field_of(model), model.folder, "must be a folder below the project's") from error
    if not folder.is_dir():
        raise ConfigError(source, _field_of(model), model.folder, f"there is no folder {folder}")
    return folder


def is_here(model: TransformersSpec, source: str) -> bool:
    """Test that a network's files need no download. ``MissingExtra`` without the library of the hub."""
    return model.id is None or _cached(model.id, str(model.revision), source) is not None


def _repository(name: str, revision: str, source: str, *, download: bool) -> Path:
    """Folder of a commit in the cache of the hub, fetched where it is missing."""
    if (folder := _cached(name, revision, source)) is not None:
        return folder
    if not download:
        raise ConfigError(source, "training.model.id", name, f"revision {revision} is not in the local cache yet")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(_PATTERNS)))
    except (OSError, ValueError) as error:
        rule = f"revision {revision} cannot be fetched: {type(error).__name__}: {error}"
        raise ConfigError(source, "training.model.id", name, rule) from error


def _cached(name: str, revision: str, source: str) -> Path | None:
    if not is_installed("huggingface_hub"):
        raise MissingExtra(source, "training.model.id", name, package="huggingface_hub", extra="text")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(_PATTERNS), local_files_only=True))
    except LocalEntryNotFoundError:
        return None


def _opened(path: Path, spec: TrainingSpec, source: str) -> Any:
    field, place = field_and_place(spec)
    try:
        return safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        with path.open("rb") as file:
            found = pickle_in(file.read(_SEARCHED))
        rule = f"{path.name} cannot be read: {error}"
        if found is not None:
            rule = f"{path.name} is a pickle ({found}), which would run code when it is loaded; write safetensors"
        raise ConfigError(source, field, place, rule) from error
