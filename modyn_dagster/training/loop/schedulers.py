"""Learning rate schedules, stretched to the number of steps within the training's budgets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.optim import lr_scheduler

from modyn_dagster.errors import ConfigError
from modyn_dagster.imports import import_callable
from modyn_dagster.spec.learning.optimizers import CustomSchedulerSpec, SchedulerName, SchedulerSpec
from modyn_dagster.spec.training import TrainingSpec


@dataclass(frozen=True, slots=True)
class Length:
    """Batches, optimizer steps and epochs of a whole training; where they are up to chance, the most there can be."""

    n_batches: int
    n_steps: int
    n_epochs: int


def length_of(sizes: Sequence[int], spec: TrainingSpec) -> Length:
    """Length of a training whose epochs have batches of these sizes, within the spec's budgets.

    >>> length_of([4, 4, 2], TrainingSpec(model={"name": "mlp"}, epochs=2, accumulate=2))
    Length(n_batches=6, n_steps=4, n_epochs=2)
    """
    if spec.max_samples is None and spec.max_steps is None:
        return Length(spec.epochs * len(sizes), spec.epochs * -(-len(sizes) // spec.accumulate), spec.epochs)
    n_batches = n_steps = n_samples = 0
    for epoch in range(spec.epochs):
        pending = 0
        for number, size in enumerate(sizes):
            if spent(spec, n_steps, n_samples, size):
                return Length(n_batches, n_steps + bool(pending), epoch + bool(number))
            n_batches, n_samples, pending = n_batches + 1, n_samples + size, pending + 1
            if pending == spec.accumulate:
                n_steps, pending = n_steps + 1, 0
        n_steps += bool(pending)
    return Length(n_batches, n_steps, spec.epochs)


def spent(spec: TrainingSpec, n_steps: int, n_samples: int, size: int) -> bool:
    """True if the budgets forbid a batch of ``size`` after so many steps and samples."""
    return n_steps == spec.max_steps or (spec.max_samples is not None and n_samples + size > spec.max_samples)


# Of each name: the class, and what it calls its length.
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
# What differs from torch's own defaults: a constant rate is one, and a line goes down.
_DEFAULTS: Final[dict[str, dict[str, Any]]] = {"constant": {"factor": 1.0}, "linear": {"start_factor": 1.0, "end_factor": 0.01}}
#: Of the learning rate, at the first step of a warm-up.
WARM_FROM: Final = 1e-3


class Scheduler:
    """Steps with its optimizer, or with the epochs.

    Args:
        spec: what it is.
        optimizer: whose learning rates it changes.
        length: of the training.
        field: where it stands in the spec of ``source``, for errors.
    """

    def __init__(
        self,
        spec: SchedulerSpec | CustomSchedulerSpec,
        optimizer: torch.optim.Optimizer,
        length: Length,
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

    def after(self, what: str) -> None:
        """A ``batch`` (an optimizer step) or an ``epoch`` is over."""
        if what == self._every:
            self._scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        """Position in the schedule."""
        return dict(self._scheduler.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another one was."""
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
    factory = import_callable(spec.factory, source=source, field=f"{field}.factory")
    try:
        found = factory(optimizer, n_steps=length, **spec.config)
    except Exception as error:
        rule = f"{spec.factory} refused it: {type(error).__name__}: {error}"
        raise ConfigError(source, f"{field}.config", spec.config, rule) from error
    missing = [name for name in ("step", "state_dict", "load_state_dict") if not callable(getattr(found, name, None))]
    if missing:
        rule = f"must return a scheduler; a {type(found).__name__} has no {', '.join(missing)}"
        raise ConfigError(source, f"{field}.factory", spec.factory, rule)
    return found
