"""How long a training will be, told before it begins."""

from collections.abc import Sequence
from dataclasses import dataclass

from modyn_dagster.spec.training import TrainingSpec


@dataclass(frozen=True, slots=True)
class Length:
    """Batches, optimizer steps and epochs of a whole training; where they are up to chance, the most there can be."""

    n_batches: int
    n_steps: int
    n_epochs: int


def length_of(sizes: Sequence[int], spec: TrainingSpec) -> Length:
    """Of epochs with batches of these many samples, within the spec's budgets.

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
    """Whether the budgets forbid a batch of ``size`` after so many steps and samples."""
    return n_steps == spec.max_steps or (spec.max_samples is not None and n_samples + size > spec.max_samples)
