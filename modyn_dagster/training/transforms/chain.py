"""The transforms of a spec: those of training, those of evaluation, and which threads they run in."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import takewhile

import torch
from torch import Tensor

from modyn_dagster.errors import ConfigError
from modyn_dagster.keys import KeyArray
from modyn_dagster.reproducibility.determinism import generator_snapshot, preserved_generators
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.memory import aligned
from modyn_dagster.training.parsing.parser import Where
from modyn_dagster.training.transforms.transform import Draws, Transform

#: A model's inputs by name, each ``[n, ...]``.
Tensors = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Pass:
    """Some of the transforms, one after the other, in one epoch.

    Attributes:
        steps: transforms with their seeds.
        dtype: dtype of returned floats.
    """

    steps: Sequence[tuple[Transform, Draws]]
    dtype: torch.dtype

    def __bool__(self) -> bool:
        return bool(self.steps)

    def __call__(self, inputs: Tensors, keys: KeyArray) -> Tensors:
        """Transform the inputs of the samples with these keys."""
        if not self.steps:
            return inputs
        found = dict(inputs)
        with preserved_generators() if any(transform.beside for transform, _ in self.steps) else nullcontext():
            for transform, draws in self.steps:
                name = transform.spec.input or next(iter(found))
                found[name] = transform(found[name], keys, draws)
        return {name: self._finished(tensor) if tensor is not inputs[name] else tensor for name, tensor in found.items()}

    def _finished(self, tensor: Tensor) -> Tensor:
        single = tensor.to(self.dtype) if tensor.is_floating_point() else tensor
        # Aligned, because kernels choose their path and thereby the bits by alignment.
        return torch.from_numpy(aligned(single.contiguous().numpy()))

    def split(self) -> tuple["Pass", "Pass"]:
        """Split into the leading transforms that any thread may run, and the rest, which need the training thread."""
        ahead = list(takewhile(lambda step: not step[0].beside, self.steps))
        return Pass(ahead, self.dtype), Pass(self.steps[len(ahead) :], self.dtype)


class Transforms:
    """All transforms of a training spec.

    Args:
        spec: spec of the training.
        source: name of the pipeline, for errors.
        where: finds the place of a sample, for errors.
    """

    def __init__(self, spec: TrainingSpec, source: str, where: Where | None = None) -> None:
        self._source = source
        self._dtype = torch.float64 if spec.precision == "64-true" else torch.float32
        self._all = [
            Transform(each, field=f"training.transforms.{i}", source=source, where=where)
            for i, each in enumerate(spec.transforms)
        ]

    def __bool__(self) -> bool:
        return bool(self._all)

    def training(self, seed: int, epoch: int) -> Pass:
        """Transforms of samples that are trained on."""
        return self._pass("train", seed, epoch)

    def evaluation(self) -> Pass:
        """Transforms of samples that are predicted, measured or watched; a sample draws the same every time."""
        return self._pass("evaluate", 0, 0)

    def require_quiet(self, inputs: Tensors, keys: KeyArray) -> None:
        """Check that transforms with ``draws: false`` draw nothing from the process's generators; else ``ConfigError``."""
        for passing in (self.training(0, 0), self.evaluation()):
            found = dict(inputs)
            for transform, draws in passing.steps:
                with preserved_generators():
                    before = generator_snapshot()
                    found = Pass([(transform, draws)], self._dtype)(found, keys)
                    if not transform.beside and generator_snapshot() != before:
                        rule = "draws from the generators of the process: leave `draws: false` out, or let it take `rng`"
                        raise ConfigError(self._source, transform.field, transform.spec.path, rule)

    def _pass(self, when: str, seed: int, epoch: int) -> Pass:
        numbered = enumerate(self._all)
        chosen = [(each, Draws.of(seed, i, epoch)) for i, each in numbered if each.spec.when in ("always", when)]
        return Pass(chosen, self._dtype)
