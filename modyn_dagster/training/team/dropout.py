"""Dropout over the batch of all ranks: a sample loses the values that it would lose in one process.

Source: Srivastava et al., Dropout: A Simple Way to Prevent Neural Networks from Overfitting, JMLR 2014.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from modyn_dagster.errors import ConfigError
from modyn_dagster.training.inputs.batch import Whole

#: Layers that multiply every value by a random number, which does not depend on the value.
_SHARED: Final = frozenset({nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d})

#: Forward pass of a layer.
Layer = Callable[[Tensor], Tensor]


class Masks:
    """Masks of dropout by sample: every rank draws those of the whole batch, and keeps the rows of its own samples.

    All ranks draw from generators in the state that the generator of one process would have, and draw as much as it would. So
    the mask of a sample depends on seed, step, layer and the sample's place in the batch, which is the same for any number
    of ranks.

    Args:
        device: device of the training.
        source: name of the pipeline, for errors.

    Attributes:
        state: state of the generator, the same on every rank; None before the first step.
    """

    def __init__(self, device: torch.device, source: str) -> None:
        self._device, self._source = device, source
        self._whole: Whole | None = None
        self.state: Tensor | None = None

    def generator_state(self) -> Tensor:
        """Return the state of this process's generator."""
        return _generator(self._device).get_state()

    @contextmanager
    def of_step(self, whole: Whole) -> Iterator[None]:
        """Draw for this batch within the block, which is the forward pass of a step."""
        self._whole = whole
        try:
            yield
        finally:
            self._whole = None

    def own(self, name: str, layer: Layer, inputs: Tensor) -> Tensor:
        """Return the factors of a layer's inputs ``[b, ...]``, the samples of this rank.

        Raises:
            ConfigError: the layer is called outside of a step, or its inputs do not have a row per sample.
        """
        whole = self._whole
        if whole is None:
            rule = f"the dropout {name} draws outside of the forward pass, for example in a checkpointed part that is repeated"
            raise self._refused(f"{rule}; leave that out")
        first, last = whole.bounds
        if len(inputs) != last - first:
            rule = f"the dropout {name} gets inputs of shape {tuple(inputs.shape)} for {last - first} samples of this rank"
            raise self._refused(f"{rule}; the first axis must count the samples")
        with torch.no_grad(), self._drawing():
            factors = layer(_ones_like(inputs, len(whole.targets)))
        return factors[first:last] if whole.order is None else factors[whole.own(whole.order).to(factors.device)]

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """Draw from the common state within the block; the generator of this process stays as it is."""
        generator = _generator(self._device)
        before = generator.get_state()
        generator.set_state(before if self.state is None else self.state)
        try:
            yield
        finally:
            self.state = generator.get_state()
            generator.set_state(before)

    def _refused(self, rule: str) -> ConfigError:
        return ConfigError(self._source, "training.ranks", "(above 1)", f"{rule}, or use `ranks: 1`")


def share_dropouts(body: nn.Module, masks: Masks) -> bool:
    """Let every dropout layer of a model draw by sample; True if there was one.

    Only ``nn.Dropout`` and its kinds for channels do; subclasses of user code stay as they are.
    """
    found = [(name, module) for name, module in body.named_modules() if type(module) in _SHARED]
    for name, module in found:
        # Of this module alone: its class, hooks and name stay.
        module.forward = _Shared(name or type(module).__name__, module, module.forward, masks)
    return bool(found)


@dataclass(frozen=True, slots=True)
class _Shared:
    """Forward pass of a dropout layer in ranks."""

    name: str
    module: nn.Module
    layer: Layer
    masks: Masks

    def __call__(self, inputs: Tensor) -> Tensor:
        """Drop values of ``[b, ...]``; none in evaluation mode."""
        return inputs * self.masks.own(self.name, self.layer, inputs) if self.module.training else inputs


def _ones_like(inputs: Tensor, n: int) -> Tensor:
    """``n`` rows of ones with the axes of the inputs in the same order in memory, which is that of random numbers."""
    strides = inputs.stride()
    axes = sorted(range(inputs.ndim), key=lambda axis: -strides[axis])
    shape = [n if axis == 0 else inputs.shape[axis] for axis in axes]
    return inputs.new_ones(shape).permute([axes.index(axis) for axis in range(inputs.ndim)])


def _generator(device: torch.device) -> torch.Generator:
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        return torch.cuda.default_generators[index]
    return torch.default_generator
