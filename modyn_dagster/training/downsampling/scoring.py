"""Scores of samples by the model in training: outputs, losses, gradients and embeddings in evaluation mode."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from modyn_dagster.training.data import EMBEDDING
from modyn_dagster.training.inputs.batch import Batch
from modyn_dagster.training.models.activations import record_activations
from modyn_dagster.training.models.network import SampleLoss


@contextmanager
def evaluation_mode(body: nn.Module) -> Iterator[None]:
    """Set a model to evaluation mode within the block, and restore every module's mode after it."""
    modules = _modules_of(body)
    if not all(_is_plain(type(module)) for module in modules):
        modes = {module: module.training for module in body.modules()}
        body.eval()
        try:
            yield
        finally:
            for module, training in modes.items():
                module.training = training
        return
    active = [module for module in modules if module.training]
    _set(active, training=False)
    try:
        yield
    finally:
        _set(active, training=True)


def _set(modules: list[nn.Module], *, training: bool) -> None:
    for module in modules:
        vars(module)["training"] = training


def _modules_of(body: nn.Module) -> list[nn.Module]:
    """List ``body.modules()``, whose nested generators take longer than a small model."""
    modules, stack = dict[nn.Module, None](), [body]
    while stack:
        module = stack.pop()
        if module not in modules:
            modules[module] = None
            stack += [part for part in vars(module)["_modules"].values() if part is not None]
    return list(modules)


def _is_plain(kind: type[nn.Module]) -> bool:
    """Tell if a module's mode is a plain attribute. Setting that directly saves a call as expensive as a layer."""
    return kind.train is nn.Module.train and kind.eval is nn.Module.eval and kind.__setattr__ is nn.Module.__setattr__


#: Forward pass of the model in training: batch to outputs.
Forward = Callable[[Batch], Tensor]


@dataclass(frozen=True, slots=True)
class Scored:
    """Scores of ``n`` samples, on the CPU unless they stay with their batch.

    Attributes:
        outputs: ``float[n, n_outputs]``.
        targets: ``[n]``.
        losses: ``float[n]``.
        gradients: gradient of each loss with respect to the outputs, ``float[n, n_outputs]``; None unless requested.
        embeddings: inputs of the last linear layer, ``float32[n, h]``; None unless requested.
    """

    outputs: Tensor
    targets: Tensor
    losses: Tensor
    gradients: Tensor | None
    embeddings: Tensor | None

    @classmethod
    def concatenate(cls, parts: list["Scored"]) -> "Scored":
        """Concatenate scores in order, on the CPU."""

        def cat(field: str) -> Tensor:
            return torch.cat([getattr(part, field).cpu() for part in parts])

        gradients = None if parts[0].gradients is None else cat("gradients")
        embeddings = None if parts[0].embeddings is None else cat("embeddings")
        return cls(cat("outputs"), cat("targets"), cat("losses"), gradients, embeddings)

    def to(self, device: torch.device) -> "Scored":
        """Move all scores to a device."""
        gradients = None if self.gradients is None else self.gradients.to(device)
        embeddings = None if self.embeddings is None else self.embeddings.to(device)
        return Scored(self.outputs.to(device), self.targets.to(device), self.losses.to(device), gradients, embeddings)

    def last_layer(self) -> Tensor:
        """Gradients of the last linear layer's weights and bias, ``float[n, n_outputs * (h + 1)]``."""
        assert self.embeddings is not None and self.gradients is not None, "requested with both"  # noqa: S101 - for the type checker
        return torch.einsum("no,nh->noh", self.gradients, with_bias_column(self.embeddings)).flatten(1)


class Scorer:
    """Scorer of batches in evaluation mode, without effect on the training.

    Args:
        body: body of the model.
        forward: forward pass with checked outputs.
        loss: losses of single samples.
        gradients: compute the gradients at the outputs.
        embeddings: keep the inputs of the last linear layer.
        source: name of the pipeline, for errors.
    """

    def __init__(
        self, body: nn.Module, forward: Forward, loss: SampleLoss, *, gradients: bool, embeddings: bool, source: str
    ) -> None:
        self._body, self._forward, self._loss = body, forward, loss
        self._gradients, self._embeddings, self._source = gradients, embeddings, source

    def __call__(self, batch: Batch) -> Scored:
        """Score a batch."""
        recording = record_activations(self._body, [EMBEDDING], source=self._source) if self._embeddings else nullcontext(None)
        with evaluation_mode(self._body), recording as recorded, torch.no_grad():
            outputs = self._forward(batch).float()
            embeddings = None if recorded is None else torch.from_numpy(recorded(EMBEDDING, len(outputs))).to(outputs.device)
        if self._gradients:
            losses, gradients = gradients_at(outputs, batch.targets, self._loss)
            return Scored(outputs, batch.targets, losses, gradients, embeddings)
        with torch.no_grad():
            losses = self._loss(outputs, batch.targets)
        return Scored(outputs, batch.targets, losses, None, embeddings)

    def all(self, batches: Iterable[Batch]) -> Scored:
        """Score all batches, in order."""
        return Scored.concatenate([self(batch) for batch in batches])


def gradients_at(outputs: Tensor, targets: Tensor, loss: SampleLoss) -> tuple[Tensor, Tensor]:
    """Compute losses ``float[n]`` and their gradients with respect to the outputs, ``float[n, n_outputs]``."""
    with torch.enable_grad():
        leaf = outputs.detach().requires_grad_()
        losses = loss(leaf, targets)
        (gradients,) = torch.autograd.grad(losses.sum(), leaf)
    return losses.detach(), gradients


def with_bias_column(embeddings: Tensor) -> Tensor:
    """Append a column of ones for the bias: ``float[n, h + 1]``."""
    return torch.cat([embeddings, embeddings.new_ones(len(embeddings), 1)], dim=1)


@dataclass(frozen=True)
class Model:
    """Model in training: body, forward pass of a batch, and loss."""

    body: nn.Module
    forward: Forward
    loss: SampleLoss
