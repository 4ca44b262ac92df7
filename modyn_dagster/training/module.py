"""Modules of recorded architectures, for predictors and exports of built-in models."""

import logging
from collections.abc import Mapping
from typing import Any, Final

from modyn_dagster.errors import ConfigError
from modyn_dagster.imports import CodeSources
from modyn_dagster.reproducibility.determinism import reproducible
from modyn_dagster.spec.learning.models import CustomSpec
from modyn_dagster.spec.learning.trainers import TrainerSpec
from modyn_dagster.spec.pipeline import HOW_FIELDS
from modyn_dagster.spec.tasks.task import truth_columns
from modyn_dagster.spec.training import TaskKind, TrainingSpec
from modyn_dagster.training.models.layout import Layout
from modyn_dagster.training.models.network import Network, build_network
from modyn_dagster.training.trainers.body import TrainerBody

logger = logging.getLogger(__name__)

#: Fields of an architecture that are not fields of a training spec.
_OTHER_FIELDS: Final = frozenset({"n_outputs", "n_measures", "features", "task", "learns", "label", "seen", "library"})


def architecture_of(
    spec: TrainingSpec,
    layout: Layout,
    n_outputs: int,
    kind: TaskKind,
    *,
    given: TaskKind,
    seen: Layout,
    n_measures: int | None = None,
) -> dict[str, Any]:
    """Record all that a model is built from beside its weights, JSON-serialisable.

    Args:
        spec: spec of the training.
        layout: layout of the inputs.
        n_outputs: outputs per sample.
        kind: kind of the task.
        given: kind of the dataset's label, before the label transform or among several columns.
        seen: layout of what the body sees of the inputs, after the transforms.
        n_measures: values per sample that metrics read where the dataset has no label; otherwise None.
    """
    included = {"model", "parser", "standardize", "precision", "deterministic", "transforms", "label_transform"}
    content = spec.model_dump(mode="json", include=included, exclude=HOW_FIELDS["training"])
    if spec.pretrained is not None and spec.pretrained.lora is not None:
        content["pretrained"] = spec.pretrained.model_dump(mode="json", include={"lora"})
    if spec.transforms or seen != layout:
        content["seen"] = seen.to_json()
    if spec.label_transform is not None or truth_columns(spec.task):
        content["label"] = given
    if spec.task is not None:
        content["learns"] = spec.task.model_dump(mode="json")
    if n_measures is not None:
        content |= spec.model_dump(mode="json", include={"loss"}) | {"n_measures": n_measures}
    return content | {"features": layout.to_json(), "n_outputs": n_outputs, "task": kind}


def spec_of_architecture(architecture: Mapping[str, Any], code: CodeSources | None = None) -> tuple[TrainingSpec, Layout]:
    """Training spec and input layout of a model, as ``train`` recorded them.

    ``ValidationError`` for an import path that ``code`` does not offer; without it, all of them are believed.
    """
    layout = Layout.from_json(architecture["features"])
    recorded = {name: value for name, value in architecture.items() if name not in _OTHER_FIELDS}
    fields = recorded | ({"features": layout.groups} if layout.groups else {})
    if "learns" in architecture:
        fields["task"] = architecture["learns"]
    return TrainingSpec.model_validate(fields, context=code), layout


def seen_layout(architecture: Mapping[str, Any], layout: Layout) -> Layout:
    """Layout of what a model's body sees of inputs with this layout."""
    return Layout.from_json(architecture["seen"]) if "seen" in architecture else layout


def empty_network(architecture: Mapping[str, Any], *, threads: int, source: str) -> Network:
    """Build a network with arbitrary weights; generators of the process keep their state."""
    spec, layout = spec_of_architecture(architecture)
    with reproducible(0, threads=threads, deterministic=spec.deterministic):
        seen = seen_layout(architecture, layout)
        network = build_network(spec, layout, int(architecture["n_outputs"]), source=source, seen=seen)
    recorded = architecture.get("library")
    if isinstance(network.body, TrainerBody) and recorded is not None and network.body.library[1] != recorded["version"]:
        library, found = network.body.library
        logger.warning("%s: the model was fitted by %s %s, and is read by %s", source, library, recorded["version"], found)
    return network


def refuse_transforms(spec: TrainingSpec) -> None:
    """Raise ``ConfigError`` for a model with transforms in prediction, which are no part of its network."""
    if applied := [transform for transform in spec.transforms if transform.when != "train"]:
        rule = "are code of your own: apply them yourself, and load the weights into the module by load_into"
        raise ConfigError("export", "training.transforms", applied[0].path, rule)


def build_module(architecture: Mapping[str, Any]) -> Network:
    """Build the network of a built-in model for exports; its input is a mapping of tensors by name.

    ``ConfigError`` for a model of user code, or with transforms in prediction: a file must not decide which code runs.
    """
    spec, _ = spec_of_architecture(architecture)
    refuse_transforms(spec)
    if isinstance(spec.model, TrainerSpec):
        rule = "is no network: export .safetensors (its tensor body.content is the library's model file), or a folder of MLflow"
        raise ConfigError("export", "model.name", spec.model.name, rule)
    if isinstance(spec.model, CustomSpec):
        rule = "is code of your own: export .safetensors (its weights begin with `body.`), or predict by training.build_predictor"
        raise ConfigError("export", "model.factory", spec.model.factory, rule)
    return empty_network(architecture, threads=1, source="export")
