"""Outputs, losses, gradients and embeddings of samples from the model in training, in evaluation mode and without a step."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from modyn_dagster.training.data import EMBEDDING
from modyn_dagster.training.inputs.batch import Batch
from modyn_dagster.training.models.activations import listening
from modyn_dagster.training.models.network import SampleLoss


@contextmanager
def judging(body: nn.Module) -> Iterator[None]:
    """In evaluation mode within the block; afterwards every module is in the mode it was in."""
    modules = _modules_of(body)
    if not all(_is_plain(type(module)) for module in modules):
        was = {module: module.training for module in body.modules()}
        body.eval()
        try:
            yield
        finally:
            for module, training in was.items():
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
    """As ``body.modules()``, whose generators inside generators take longer than a small model."""
    found, open_ = dict[nn.Module, None](), [body]
    while open_:
        module = open_.pop()
        if module not in found:
            found[module] = None
            open_ += [part for part in vars(module)["_modules"].values() if part is not None]
    return list(found)


def _is_plain(kind: type[nn.Module]) -> bool:
    """True if the module's mode is a plain attribute; setting it directly saves a call that costs as much as a layer."""
    return kind.train is nn.Module.train and kind.eval is nn.Module.eval and kind.__setattr__ is nn.Module.__setattr__


#: ``inputs -> outputs`` of the model as it is trained.
Forward = Callable[[Batch], Tensor]


@dataclass(frozen=True, slots=True)
class Scored:
    """Scores of ``n`` samples, on the CPU unless they stay with their batch.

    Attributes:
        outputs: ``float[n, n_outputs]``.
        targets: ``[n]``.
        losses: ``float[n]``.
        gradients: of each loss with respect to the outputs, ``float[n, n_outputs]``; None unless asked for.
        embeddings: what the last linear layer gets, ``float32[n, h]``; None unless asked for.
    """

    outputs: Tensor
    targets: Tensor
    losses: Tensor
    gradients: Tensor | None
    embeddings: Tensor | None

    @classmethod
    def together(cls, parts: list["Scored"]) -> "Scored":
        """One after the other, on the CPU."""

        def cat(field: str) -> Tensor:
            return torch.cat([getattr(part, field).cpu() for part in parts])

        gradients = None if parts[0].gradients is None else cat("gradients")
        embeddings = None if parts[0].embeddings is None else cat("embeddings")
        return cls(cat("outputs"), cat("targets"), cat("losses"), gradients, embeddings)

    def last_layer(self) -> Tensor:
        """Gradients of the last linear layer's weights and bias, ``float[n, n_outputs * (h + 1)]``."""
        assert self.embeddings is not None and self.gradients is not None, "asked for both"  # noqa: S101 - for the type checker
        return torch.einsum("no,nh->noh", self.gradients, with_bias_column(self.embeddings)).flatten(1)


class Scorer:
    """Scores batches with the model in evaluation mode; training goes on as if it had not happened.

    Args:
        body: of the model.
        forward: of a batch, checked.
        loss: of single samples.
        gradients: whether those at the outputs are wanted.
        embeddings: whether to keep what the last linear layer gets.
        source: for errors.
    """

    def __init__(
        self, body: nn.Module, forward: Forward, loss: SampleLoss, *, gradients: bool, embeddings: bool, source: str
    ) -> None:
        self._body, self._forward, self._loss = body, forward, loss
        self._gradients, self._embeddings, self._source = gradients, embeddings, source

    def __call__(self, batch: Batch) -> Scored:
        """One batch."""
        tapping = listening(self._body, [EMBEDDING], source=self._source) if self._embeddings else nullcontext(None)
        with judging(self._body), tapping as heard, torch.no_grad():
            outputs = self._forward(batch).float()
            embeddings = None if heard is None else torch.from_numpy(heard(EMBEDDING, len(outputs))).to(outputs.device)
        if self._gradients:
            losses, gradients = gradients_at(outputs, batch.targets, self._loss)
            return Scored(outputs, batch.targets, losses, gradients, embeddings)
        with torch.no_grad():
            losses = self._loss(outputs, batch.targets)
        return Scored(outputs, batch.targets, losses, None, embeddings)

    def all(self, batches: Iterable[Batch]) -> Scored:
        """Every batch, in order."""
        return Scored.together([self(batch) for batch in batches])


def gradients_at(outputs: Tensor, targets: Tensor, loss: SampleLoss) -> tuple[Tensor, Tensor]:
    """Losses ``float[n]``, and their gradients with respect to the outputs, ``float[n, n_outputs]``."""
    with torch.enable_grad():
        leaf = outputs.detach().requires_grad_()
        losses = loss(leaf, targets)
        (gradients,) = torch.autograd.grad(losses.sum(), leaf)
    return losses.detach(), gradients


def with_bias_column(embeddings: Tensor) -> Tensor:
    """A column of ones for the bias, ``float[n, h + 1]``."""
    return torch.cat([embeddings, embeddings.new_ones(len(embeddings), 1)], dim=1)


@dataclass(frozen=True)
class Model:
    """The model at work: its body, how it is called on a batch, and what is minimised."""

    body: nn.Module
    forward: Forward
    loss: SampleLoss
