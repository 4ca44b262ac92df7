"""The module of a recorded architecture: for predictors, and for whoever exports a model of the box."""

from collections.abc import Mapping
from typing import Any, Final

from modyn_dagster.determinism import reproducible
from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.learning.models import CustomSpec
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.models.layout import Layout
from modyn_dagster.training.models.network import Network, build_network

#: What an architecture has beside fields of a training's spec.
_BESIDE: Final = frozenset({"n_outputs", "features", "task", "label", "seen"})


def recorded_spec(architecture: Mapping[str, Any]) -> tuple[TrainingSpec, Layout]:
    """Training spec and input layout of a model, as ``train`` recorded them."""
    layout = Layout.from_json(architecture["features"])
    recorded = {name: value for name, value in architecture.items() if name not in _BESIDE}
    return TrainingSpec.model_validate(recorded | ({"features": layout.groups} if layout.groups else {})), layout


def network_of(architecture: Mapping[str, Any], *, threads: int, source: str) -> Network:
    """The network with weights that mean nothing yet; generators of the process stay where they are."""
    spec, layout = recorded_spec(architecture)
    with reproducible(0, threads=threads, deterministic=spec.deterministic):
        seen = Layout.from_json(architecture["seen"]) if "seen" in architecture else None
        return build_network(spec, layout, int(architecture["n_outputs"]), source=source, seen=seen)


def build_module(architecture: Mapping[str, Any]) -> Network:
    """The network of a model of the box, for a model store to export; its input is a mapping of tensors by name.

    ``ConfigError`` for a model of user code, or with transforms of its inputs when it predicts: which code runs must not
    stand in a file.
    """
    spec, _ = recorded_spec(architecture)
    if applied := [each for each in spec.transforms if each.when != "train"]:
        rule = "are code of your own: apply them yourself, and load the weights into the module by load_into"
        raise ConfigError("export", "training.transforms", applied[0].path, rule)
    if isinstance(spec.model, CustomSpec):
        rule = "is code of your own: export .safetensors (its weights begin with `body.`), or predict by training.build_predictor"
        raise ConfigError("export", "model.factory", spec.model.factory, rule)
    return network_of(architecture, threads=1, source="export")
