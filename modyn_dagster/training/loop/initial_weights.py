"""Initial weights of a training: fresh ones, a file of weights, or the previous model."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from modyn_dagster.errors import ConfigError, TrainingError
from modyn_dagster.spec.learning.tasks import QuantilesTask, truth_columns
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.data import PreviousModel, Task
from modyn_dagster.training.inputs.dataset_statistics import DatasetStatistics
from modyn_dagster.training.models.layout import Layout
from modyn_dagster.training.models.network import Network, build_network
from modyn_dagster.training.team.sharding import local


def n_outputs_of(spec: TrainingSpec, task: Task, statistics: DatasetStatistics, previous: PreviousModel | None) -> int:
    """Outputs of a model: one for each target, quantile or label of several; else one per known class, at least two."""
    if isinstance(spec.task, QuantilesTask):
        return len(spec.task.quantiles)
    if columns := truth_columns(spec.task):
        return len(columns)
    if task.kind == "target":
        return 1
    if task.n_classes is not None:
        return max(2, task.n_classes)
    known = int(previous.architecture["n_outputs"]) if previous is not None else 0
    return max(2, statistics.n_classes_seen, known)


def initial_network(
    spec: TrainingSpec,
    statistics: DatasetStatistics,
    n_outputs: int,
    previous: PreviousModel | None,
    initial: Mapping[str, Tensor] | None,
    source: str,
) -> Network:
    """Build a network with its initial weights, and the standardisation of the training set."""
    network = build_network(spec, statistics.reading.features.layout, n_outputs, source=source, seen=statistics.seen)
    if previous is not None:
        load_previous(network, previous, statistics, n_outputs, source)
    elif initial is not None:
        _load_initial(network, initial, spec.initial_weights or "(given)", source)
    for name, scaler in network.scalers().items():
        scaler.fit(statistics.moments[name])
    if network.encode is not None:
        network.encode.keep(statistics.reading.features.encoders)
    return network


def require_finite(network: Network, n_steps: int, source: str) -> None:
    """Check that weights are finite: no loss follows the last step that would show it."""
    for name, parameter in network.named_parameters():
        if not torch.isfinite(local(parameter)).all():
            raise TrainingError(f"{source}: {name} is not finite after step {n_steps}; lower the learning rate")


def load_previous(network: Network, previous: PreviousModel, statistics: DatasetStatistics, n_outputs: int, source: str) -> None:
    """Load a previous model; ``ConfigError`` if it has other features, outputs or weights."""
    layout = statistics.reading.features.layout
    if Layout.from_json(previous.architecture["features"]).of_shape() != layout.of_shape():
        rule = f"the previous model saw other features: {previous.architecture['features']}, now {layout.to_json()}"
        raise ConfigError(source, "training.use_previous_model", True, rule)
    if previous.architecture["n_outputs"] != n_outputs:
        rule = (
            f"the previous model has {previous.architecture['n_outputs']} outputs, this training set needs {n_outputs}; "
            "pin `classes` or `n_classes` in the dataset's label"
        )
        raise ConfigError(source, "training.use_previous_model", True, rule)
    try:
        # What is fitted to the training set is replaced anyway, and a vocabulary may have grown.
        own = {name: tensor for name, tensor in network.state_dict().items() if name.startswith("encode.")}
        network.load_state_dict(
            own | {name: tensor for name, tensor in previous.state_dict.items() if not name.startswith("encode.")}
        )
    except RuntimeError as error:
        rule = f"the previous model has other weights: {error}"
        raise ConfigError(source, "training.use_previous_model", True, rule) from error


def _load_initial(network: Network, initial: Mapping[str, Tensor], path: str, source: str) -> None:
    own: dict[str, Any] = {name.removeprefix("body."): tensor for name, tensor in initial.items()}
    weights = {name: tensor for name, tensor in own.items() if not name.startswith(("standardize.", "encode."))}
    try:
        network.body.load_state_dict(weights)
    except RuntimeError as error:
        raise ConfigError(source, "training.initial_weights", path, f"does not fit the model: {error}") from error
