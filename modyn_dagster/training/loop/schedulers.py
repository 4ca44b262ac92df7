"""Learning rate schedules, stretched to the number of steps within the training's budgets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch
from torch.optim import lr_scheduler

from modyn_dagster.errors import ConfigError
from modyn_dagster.imports import call_factory
from modyn_dagster.spec.learning.optimizers import CustomSchedulerSpec, SchedulerName, SchedulerSpec
from modyn_dagster.spec.training import TrainingSpec


@dataclass(frozen=True, slots=True)
class TrainingLength:
    """Batches, optimizer steps and epochs of a whole training; upper bounds where they are random."""

    n_batches: int
    n_steps: int
    n_epochs: int


def length_of(sizes: Sequence[int], spec: TrainingSpec) -> TrainingLength:
    """Length of a training with these batch sizes per epoch, within the spec's budgets.

    >>> length_of([4, 4, 2], TrainingSpec(model={"name": "mlp"}, epochs=2, accumulate=2))
    TrainingLength(n_batches=6, n_steps=4, n_epochs=2)
    """
    if spec.max_samples is None and spec.max_steps is None:
        return TrainingLength(spec.epochs * len(sizes), spec.epochs * -(-len(sizes) // spec.accumulate), spec.epochs)
    n_batches = n_steps = n_samples = 0
    for epoch in range(spec.epochs):
        pending = 0
        for number, size in enumerate(sizes):
            if budget_forbids(spec, n_steps, n_samples, size):
                return TrainingLength(n_batches, n_steps + bool(pending), epoch + bool(number))
            n_batches, n_samples, pending = n_batches + 1, n_samples + size, pending + 1
            if pending == spec.accumulate:
                n_steps, pending = n_steps + 1, 0
        n_steps += bool(pending)
    return TrainingLength(n_batches, n_steps, spec.epochs)


def budget_forbids(spec: TrainingSpec, n_steps: int, n_samples: int, size: int) -> bool:
    """Tell if the budgets forbid a batch of ``size`` after ``n_steps`` and ``n_samples``."""
    return n_steps == spec.max_steps or (spec.max_samples is not None and n_samples + size > spec.max_samples)


# Class of each scheduler, and its parameter for the length.
_CLASSES: Final[dict[SchedulerName, tuple[Any, str | None]]] = {
    "constant": (lr_scheduler.ConstantLR, None),
    "step": (lr_scheduler.StepLR, None),
    "multistep": (lr_scheduler.MultiStepLR, None),
    "exponential": (lr_scheduler.ExponentialLR, None),
    "linear": (lr_scheduler.LinearLR, "total_iters"),
    "polynomial": (lr_scheduler.PolynomialLR, "total_iters"),
    "cosine": (lr_scheduler.CosineAnnealingLR, "T_max"),
    "one_cycle": (lr_scheduler.OneCycleLR, "total_steps"),
}
# Defaults that differ from torch: a constant rate does not change, and a linear one falls.
_DEFAULTS: Final[dict[str, dict[str, Any]]] = {"constant": {"factor": 1.0}, "linear": {"start_factor": 1.0, "end_factor": 0.01}}
#: Share of the learning rate at the first step of a warm-up.
WARM_FROM: Final = 1e-3


class Scheduler:
    """Learning rate schedule that advances with optimizer steps or epochs.

    Args:
        spec: spec of the schedule.
        optimizer: optimizer whose learning rates change.
        length: length of the training.
        field: field of the spec, for errors.
        source: name of the pipeline, for errors.
    """

    def __init__(
        self,
        spec: SchedulerSpec | CustomSchedulerSpec,
        optimizer: torch.optim.Optimizer,
        length: TrainingLength,
        *,
        field: str,
        source: str,
    ) -> None:
        self._every = spec.every
        n_steps = length.n_steps if spec.every == "batch" else length.n_epochs
        self._scheduler: Any = (
            _of_user(spec, optimizer, n_steps, field, source)
            if isinstance(spec, CustomSchedulerSpec)
            else _of_torch(spec, optimizer, n_steps, field, source)
        )

    def after(self, unit: Literal["batch", "epoch"]) -> None:
        """Advance after a ``batch`` (an optimizer step) or an ``epoch``."""
        if unit == self._every:
            self._scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the schedule."""
        return dict(self._scheduler.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self._scheduler.load_state_dict(state)


def _of_torch(spec: SchedulerSpec, optimizer: torch.optim.Optimizer, length: int, field: str, source: str) -> Any:
    kind, length_name = _CLASSES[spec.name]
    rest = max(1, length - spec.warmup)
    settings = _DEFAULTS.get(spec.name, {}) | ({length_name: rest} if length_name else {})
    if spec.name == "one_cycle":
        settings |= {"max_lr": [group["lr"] for group in optimizer.param_groups]}
    try:
        if not spec.warmup:
            return kind(optimizer, **settings | spec.config)
        warm = lr_scheduler.LinearLR(optimizer, start_factor=WARM_FROM, total_iters=spec.warmup)
        return lr_scheduler.SequentialLR(optimizer, [warm, kind(optimizer, **settings | spec.config)], [spec.warmup])
    except (TypeError, ValueError) as error:
        raise ConfigError(source, f"{field}.config", spec.config, f"{spec.name} refused it: {error}") from error


def _of_user(spec: CustomSchedulerSpec, optimizer: torch.optim.Optimizer, length: int, field: str, source: str) -> Any:
    found = call_factory(spec.factory, spec.config, optimizer, source=source, field=field, n_steps=length)
    missing = [name for name in ("step", "state_dict", "load_state_dict") if not callable(getattr(found, name, None))]
    if missing:
        rule = f"must return a scheduler; a {type(found).__name__} has no {', '.join(missing)}"
        raise ConfigError(source, f"{field}.factory", spec.factory, rule)
    return found
