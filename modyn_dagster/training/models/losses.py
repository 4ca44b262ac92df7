"""Losses of single samples, built in or from user code, and their weighted mean."""

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from modyn_dagster.errors import ConfigError, WrongShape
from modyn_dagster.imports import call_factory
from modyn_dagster.spec.learning.models import CustomSpec
from modyn_dagster.spec.training import LossName, TaskKind, TrainingSpec
from modyn_dagster.training.data import default_loss
from modyn_dagster.training.models.network import SampleLoss


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


def _mse(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.mse_loss(outputs.squeeze(1), targets, reduction="none")


def _l1(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.l1_loss(outputs.squeeze(1), targets, reduction="none")


LOSSES: Final[Mapping[LossName, SampleLoss]] = {"cross_entropy": _cross_entropy, "mse": _mse, "l1": _l1}


def build_loss(spec: TrainingSpec, kind: TaskKind, *, source: str) -> SampleLoss:
    """The loss of a spec; a custom one is ``factory(**config)`` and must be callable."""
    if spec.loss is None or isinstance(spec.loss, str):
        return LOSSES[spec.loss or default_loss(kind)]
    assert isinstance(spec.loss, CustomSpec)  # noqa: S101 - objectives are losses themselves
    loss: object = call_factory(spec.loss.factory, spec.loss.config, source=source, field="training.loss")
    if not callable(loss):
        rule = f"must return a callable (outputs, targets) -> losses, not {type(loss).__name__}"
        raise ConfigError(source, "training.loss.factory", spec.loss.factory, rule)
    return loss


def weighted_mean(losses: object, weights: Tensor, *, what: str, divisor: float | None = None) -> Tensor:
    """``sum(w * l) / sum(w)`` of one batch, or over ``divisor``; a scalar. ``WrongShape`` unless there is one loss per sample."""
    if not isinstance(losses, Tensor):
        raise WrongShape(weights.shape, (), what=f"{what} (a {type(losses).__name__})")
    if losses.shape != weights.shape:
        raise WrongShape(weights.shape, losses.shape, what=what)
    total = torch.dot(losses.to(weights.dtype), weights)
    return total / weights.sum() if divisor is None else total / divisor
