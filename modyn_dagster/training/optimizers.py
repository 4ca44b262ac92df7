"""Optimizers by name or from user code."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import torch
from torch import nn

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.models import CustomSpec
from modyn_dagster.spec.training import OptimizerSpec
from modyn_dagster.training.network import call_factory

OPTIMIZERS: Final[Mapping[str, Callable[..., torch.optim.Optimizer]]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


def build_optimizer(
    spec: OptimizerSpec | CustomSpec, parameters: Iterable[nn.Parameter], *, source: str
) -> torch.optim.Optimizer:
    """The optimizer of a spec; a custom one is ``factory(parameters, **config)``."""
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    if not trainable:
        raise ConfigError(source, "training.model", "(module)", "has no parameter that can be trained")
    if isinstance(spec, OptimizerSpec):
        return OPTIMIZERS[spec.name](trainable, **_settings(spec))
    optimizer = call_factory(spec, trainable, field="training.optimizer", source=source)
    if not isinstance(optimizer, torch.optim.Optimizer):
        rule = f"must return a torch.optim.Optimizer, not {type(optimizer).__name__}"
        raise ConfigError(source, "training.optimizer.factory", spec.factory, rule)
    return optimizer


def _settings(spec: OptimizerSpec) -> dict[str, Any]:
    settings = {"lr": spec.lr, "weight_decay": spec.weight_decay}
    return settings | {"momentum": spec.momentum} if spec.name == "sgd" else settings
