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

#: Forward pass of a layer, or a draw: random numbers of the shape of a tensor of ones.
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
        is_drawing: True while random numbers of the whole batch are drawn.
    """

    def __init__(self, device: torch.device, source: str) -> None:
        self._device, self._source = device, source
        self._whole: Whole | None = None
        self.state: Tensor | None = None
        self.is_drawing = False

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

    def own(self, name: str, draw: Layer, inputs: Tensor, *, axis: int = 0, per_sample: int = 1) -> Tensor:
        """Return random numbers for the samples of this rank.

        Args:
            name: name of the dropout, for errors.
            draw: draw for the samples of all ranks, whose argument has the inputs' layout in memory.
            inputs: tensor with the shape of the random numbers.
            axis: axis of the samples.
            per_sample: entries of that axis that belong to a sample, next to each other.

        Raises:
            ConfigError: the draw is outside of a step, or the axis does not count the samples.
        """
        whole = self._whole
        if whole is None:
            rule = f"the dropout {name} draws outside of the forward pass, for example in a checkpointed part that is repeated"
            raise self.refused(f"{rule}; leave that out")
        first, last = whole.bounds
        if inputs.ndim <= axis or inputs.shape[axis] != (last - first) * per_sample:
            rule = f"the dropout {name} gets inputs of shape {tuple(inputs.shape)} for {last - first} samples of this rank"
            raise self.refused(f"{rule}; the {_ORDINALS[axis]} axis must count the samples")
        with torch.no_grad(), self._drawing():
            drawn = draw(_ones_like(inputs, len(whole.targets) * per_sample, axis))
        shape = (*drawn.shape[:axis], len(whole.targets), per_sample, *drawn.shape[axis + 1 :])
        blocks: Tensor = drawn.reshape(shape)
        if whole.order is None:
            blocks = blocks.narrow(axis, first, last - first)
        else:
            blocks = blocks.index_select(axis, whole.own(whole.order).to(drawn.device))
        return blocks.flatten(axis, axis + 1)

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """Draw from the common state within the block; the generator of this process stays as it is."""
        generator = _generator(self._device)
        before = generator.get_state()
        generator.set_state(before if self.state is None else self.state)
        self.is_drawing = True
        try:
            yield
        finally:
            self.is_drawing = False
            self.state = generator.get_state()
            generator.set_state(before)

    def refused(self, rule: str) -> ConfigError:
        """Return an error for a dropout that ranks cannot share."""
        return ConfigError(self._source, "training.ranks", "(above 1)", f"{rule}, or use `ranks: 1`")


def share_dropouts(body: nn.Module, masks: Masks) -> None:
    """Let every dropout layer of a model draw by sample, and name itself in errors.

    Only ``nn.Dropout`` and its kinds for channels do; subclasses of user code stay as they are.
    """
    for name, module in body.named_modules():
        if type(module) in _SHARED:
            # Of this module alone: its class, hooks and name stay.
            module.forward = _Shared(name or type(module).__name__, module, module.forward, masks)


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


_ORDINALS: Final = ("first", "second")


def _ones_like(inputs: Tensor, n: int, samples: int) -> Tensor:
    """Ones with ``n`` entries on the axis of the samples, and the axes of the inputs in the same order in memory.

    That is the order of random numbers.
    """
    strides = inputs.stride()
    # One sample alone may stand on every axis: of equal strides, its axis is the inner one.
    axes = sorted(range(inputs.ndim), key=lambda axis: (-strides[axis], axis == samples))
    shape = [n if axis == samples else inputs.shape[axis] for axis in axes]
    return inputs.new_ones(shape).permute([axes.index(axis) for axis in range(inputs.ndim)])


def _generator(device: torch.device) -> torch.Generator:
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        return torch.cuda.default_generators[index]
    return torch.default_generator
