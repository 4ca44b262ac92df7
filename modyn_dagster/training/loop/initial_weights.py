"""Initial weights of a training: fresh ones, a file of weights, pretrained ones, or the previous model."""

import json
import logging
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from modyn_dagster.errors import ConfigError, TrainingError
from modyn_dagster.spec.tasks.task import QuantilesTask, SeveralColumns
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.data import PreviousModel, Task
from modyn_dagster.training.inputs.dataset_statistics import DatasetStatistics
from modyn_dagster.training.models.fine_tuning.adapters import add_adapters, frozen_beside_adapters
from modyn_dagster.training.models.fine_tuning.freezing import freeze, frozen_names
from modyn_dagster.training.models.fine_tuning.report import LoadReport, by_names_of_body, load_partially
from modyn_dagster.training.models.layout import Layout
from modyn_dagster.training.models.libraries.transformers import TransformersNetwork
from modyn_dagster.training.models.network import Network, build_network
from modyn_dagster.training.pretrained.weights_file import field_and_place
from modyn_dagster.training.team.sharding import local

logger = logging.getLogger(__name__)


def n_outputs_of(spec: TrainingSpec, task: Task, statistics: DatasetStatistics, previous: PreviousModel | None) -> int:
    """Outputs of a model: one for each target, quantile or label of several; else one per known class, at least two."""
    if isinstance(spec.task, QuantilesTask):
        return len(spec.task.quantiles)
    if isinstance(spec.task, SeveralColumns):
        return len(spec.task.columns)
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
) -> tuple[Network, LoadReport | None]:
    """Build a network with its initial weights, its frozen parameters, and the standardisation of the training set.

    Returns with it the report of pretrained weights, where training begins with some.
    """
    begins = previous is None and initial is not None
    layout, report = statistics.reading.features.layout, None
    network = build_network(spec, layout, n_outputs, source=source, seen=statistics.seen, adapted=not begins)
    if previous is not None:
        load_previous(network, previous, statistics, n_outputs, source)
    elif initial is not None and spec.is_pretrained and spec.initial_weights is None:
        report = load_pretrained(network.body, initial, spec, source=source)
    elif initial is not None:
        _load_initial(network, initial, spec.initial_weights or "(given)", source)
    _fine_tune(network, spec, fresh_adapters=begins, source=source)
    for name, scaler in network.scalers().items():
        scaler.fit(statistics.moments[name])
    if network.encode is not None:
        network.encode.keep(statistics.reading.features.encoders)
    return network, report


def load_pretrained(body: nn.Module, weights: Mapping[str, Tensor], spec: TrainingSpec, *, source: str) -> LoadReport:
    """Take over the pretrained weights that fit a body; ``ConfigError`` where none does."""
    names = list(body.state_dict())
    if isinstance(body, TransformersNetwork):
        report = body.load_pretrained(weights)
    else:
        report = load_partially(body, by_names_of_body(weights, names))
    field, place = field_and_place(spec)
    report.require_some(weights, names, field=field, path=place, source=source)
    if report.missing or report.unexpected or report.reinitialised:
        logger.info("%s: %s: %s", source, field, json.dumps(report.to_json()))
    return report


def _fine_tune(network: Network, spec: TrainingSpec, *, fresh_adapters: bool, source: str) -> None:
    """Freeze what the spec says, and add adapters where the body has none yet."""
    if spec.pretrained is None:
        return
    body, lora = network.body, spec.pretrained.lora
    frozen: Collection[str] = ()
    if lora is not None:
        frozen = add_adapters(body, lora, source=source) if fresh_adapters else frozen_beside_adapters(body, lora, source=source)
        if fresh_adapters and spec.precision == "64-true":
            body.double()
    elif spec.pretrained.freeze is not None:
        frozen = frozen_names(spec.pretrained.freeze, [name for name, _ in body.named_parameters()], source=source)
    freeze(body, frozen)


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
