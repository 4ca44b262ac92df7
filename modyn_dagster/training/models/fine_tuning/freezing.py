"""Frozen parameters by patterns of their names, and batch norm with fixed statistics."""

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from modyn_dagster.errors import ConfigError

_T = TypeVar("_T")


def matching(
    patterns: Sequence[str], named: Mapping[str, _T], *, field: str, source: str, noun: str = "parameter"
) -> dict[str, _T]:
    """Values whose names fit one of the patterns; ``ConfigError`` for a pattern that fits none."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in named):
            rule = f"fits no {noun}; there are {', '.join(named) or 'none left'}"
            raise ConfigError(source, field, pattern, rule)
    return {name: value for name, value in named.items() if any(fnmatchcase(name, each) for each in patterns)}


def frozen_names(patterns: Sequence[str], names: Collection[str], *, source: str) -> frozenset[str]:
    """Names of parameters that patterns freeze. ``ConfigError`` for a pattern that fits none, and where nothing is left."""
    field = "training.pretrained.freeze"
    frozen = frozenset(matching(patterns, dict.fromkeys(names), field=field, source=source))
    if frozen == frozenset(names):
        raise ConfigError(source, field, list(patterns), "freezes every parameter, so nothing is trained; leave out the head")
    return frozen


def freeze(body: nn.Module, frozen: Collection[str]) -> None:
    """Take parameters out of the training, and fix the statistics of batch norm whose parameters are all frozen."""
    for name, parameter in body.named_parameters():
        if name in frozen:
            parameter.requires_grad = False
    for name, module in list(body.named_modules()):
        own = [f"{name}.{key}" for key, _ in module.named_parameters(recurse=False)]
        if name and isinstance(module, _BatchNorm) and module.running_mean is not None and own and set(own) <= set(frozen):
            parent, _, attribute = name.rpartition(".")
            setattr(body.get_submodule(parent), attribute, FixedBatchNorm(module))


class FixedBatchNorm(nn.Module):
    """Batch norm that normalises by its running statistics in training too, and never changes them.

    Args:
        original: batch norm whose parameters, statistics and names are taken over.
    """

    def __init__(self, original: _BatchNorm) -> None:
        super().__init__()
        self._parameters.update(original._parameters)
        self._buffers.update(original._buffers)
        self.eps = original.eps

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise ``[n, c, ...]``."""
        mean, variance = cast(Tensor, self._buffers["running_mean"]), cast(Tensor, self._buffers["running_var"])
        weight, bias = self._parameters["weight"], self._parameters["bias"]
        return torch.nn.functional.batch_norm(inputs, mean, variance, weight, bias, training=False, eps=self.eps)
