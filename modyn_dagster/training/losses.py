"""Losses of single samples, by name or from user code, and the weighted mean that is minimised."""

from collections.abc import Callable, Mapping
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from modyn_dagster.errors import ConfigError, WrongShape
from modyn_dagster.spec.models import CustomSpec
from modyn_dagster.spec.training import LossName, TaskKind, TrainingSpec
from modyn_dagster.training.check import default_loss
from modyn_dagster.training.network import call_factory

#: ``(outputs [B, n_outputs], targets [B]) -> losses [B]``; targets are int64 classes or float32 values.
SampleLoss = Callable[[Tensor, Tensor], Tensor]


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


def _mse(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.mse_loss(outputs.squeeze(1), targets, reduction="none")


def _l1(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.l1_loss(outputs.squeeze(1), targets, reduction="none")


LOSSES: Final[Mapping[LossName, SampleLoss]] = {"cross_entropy": _cross_entropy, "mse": _mse, "l1": _l1}


def build_loss(spec: TrainingSpec, kind: TaskKind, *, source: str) -> SampleLoss:
    """The loss of a spec; a custom one is ``factory(**config)`` and must be callable."""
    if not isinstance(spec.loss, CustomSpec):
        return LOSSES[spec.loss or default_loss(kind)]
    loss = call_factory(spec.loss, field="training.loss", source=source)
    if not callable(loss):
        rule = f"must return a callable (outputs, targets) -> losses, not {type(loss).__name__}"
        raise ConfigError(source, "training.loss.factory", spec.loss.factory, rule)
    return loss


def check_outputs(outputs: object, expected: tuple[int, int], *, what: str) -> Tensor:
    """The outputs if they are a tensor ``[B, n_outputs]``, else ``WrongShape``."""
    if not isinstance(outputs, Tensor):
        raise WrongShape(expected, (), what=f"{what} (a {type(outputs).__name__})")
    if outputs.shape != expected:
        raise WrongShape(expected, outputs.shape, what=what)
    return outputs


def weighted_mean(losses: object, weights: Tensor, *, what: str, divisor: float | None = None) -> Tensor:
    """``sum(w * l) / sum(w)`` of one batch, or over ``divisor``; a scalar. ``WrongShape`` unless there is one loss per sample."""
    if not isinstance(losses, Tensor):
        raise WrongShape(weights.shape, (), what=f"{what} (a {type(losses).__name__})")
    if losses.shape != weights.shape:
        raise WrongShape(weights.shape, losses.shape, what=what)
    total = torch.dot(losses.to(weights.dtype), weights)
    return total / weights.sum() if divisor is None else total / divisor
