"""The whole model: standardisation, then a body from the box or from user code."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy.typing as npt
import torch
from torch import Tensor, nn

from modyn_dagster.errors import ConfigError
from modyn_dagster.imports import import_callable
from modyn_dagster.spec.training import CustomSpec, LogisticRegressionSpec, MLPSpec, ModelSpec, TrainingSpec
from modyn_dagster.training.features import Layout
from modyn_dagster.training.standardize import Standardize


class Network(nn.Module):
    """What is stored as one model.

    ``prepare`` turns features into the body's input. Training does it once per sample, before the loop; ``forward`` does
    both.
    """

    def __init__(self, body: nn.Module, standardize: Standardize | None, *, tabular: bool, double: bool) -> None:
        super().__init__()
        self.body = body.double() if double else body
        self.standardize = standardize
        self._dtype = torch.float64 if double else torch.float32
        self._tabular = tabular

    def prepare(self, features: Tensor) -> Tensor:
        """``float64[n, n_features]`` to the float32 (float64 with precision 64-true) the body takes; arrays stay."""
        if self.standardize is not None:
            features = self.standardize(features)
        return features.to(self._dtype) if self._tabular or features.is_floating_point() else features

    def forward(self, features: Tensor) -> Tensor:
        """Raw outputs ``[n, n_outputs]``: logits, or the regression value."""
        outputs: Tensor = self.body(self.prepare(features))
        return outputs


def build_network(spec: TrainingSpec, layout: Layout, n_outputs: int, *, source: str) -> Network:
    """A network with fresh weights from torch's global generator. ``ConfigError`` when user code refuses to build one."""
    body = _build_body(spec.model, layout.n_features, n_outputs, source)
    standardize = Standardize(layout.n_features) if layout.tabular and spec.standardize else None
    return Network(body, standardize, tabular=layout.tabular, double=spec.precision == "64-true")


def as_tensor(array: npt.NDArray[Any]) -> Tensor:
    """A copy in memory that torch allocated.

    Kernels choose their path by the alignment of their input: rows that lie in other memory may give other bits.
    """
    return torch.tensor(array)


def call_factory(spec: CustomSpec, *args: object, field: str, source: str, **given: object) -> object:
    """Call user code with what its place hands over, plus its ``config``."""
    factory = import_callable(spec.factory, source=source, field=f"{field}.factory")
    try:
        return factory(*args, **given, **spec.config)
    except Exception as error:
        rule = f"{spec.factory} refused it: {type(error).__name__}: {error}"
        raise ConfigError(source, f"{field}.config", spec.config, rule) from error


def _logistic_regression(_: LogisticRegressionSpec, n_features: int, n_outputs: int) -> nn.Module:
    return nn.Linear(n_features, n_outputs)


def _mlp(spec: MLPSpec, n_features: int, n_outputs: int) -> nn.Module:
    layers: list[nn.Module] = []
    width = n_features
    for hidden in spec.hidden:
        layers += [nn.Linear(width, hidden), nn.ReLU()]
        layers += [nn.Dropout(spec.dropout)] if spec.dropout else []
        width = hidden
    return nn.Sequential(*layers, nn.Linear(width, n_outputs))


MODELS: Final[Mapping[str, Callable[[Any, int, int], nn.Module]]] = {
    "logistic_regression": _logistic_regression,
    "mlp": _mlp,
}


def _build_body(spec: ModelSpec, n_features: int, n_outputs: int, source: str) -> nn.Module:
    if not isinstance(spec, CustomSpec):
        return MODELS[spec.name](spec, n_features, n_outputs)
    body = call_factory(spec, field="training.model", source=source, n_features=n_features, n_outputs=n_outputs)
    if not isinstance(body, nn.Module):
        rule = f"must return a torch.nn.Module, not {type(body).__name__}"
        raise ConfigError(source, "training.model.factory", spec.factory, rule)
    return body
