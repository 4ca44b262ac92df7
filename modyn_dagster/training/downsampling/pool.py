"""Pool that a downsampling policy chooses from, and its choice."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from modyn_dagster.keys import KeyArray
from modyn_dagster.reproducibility.randomness import rng_for

#: ``step float[d] -> float[d]``: gradient of the validation loss after a move of the parameters by ``-step``.
ValidationGradient = Callable[[Tensor], Tensor]

#: Shapes of the inputs, for errors.
SHAPES: Final = {
    "logits": "float[n, c]",
    "labels": "int[n]",
    "losses": "float[n]",
    "gradients": "float[n, d]",
    "embeddings": "float[n, d]",
    "irreducible_losses": "float[n]",
    "validation_gradient": "float[d], or a function of a step",
    "history": "[epochs, n]",
}


@dataclass(frozen=True, slots=True)
class Pool:
    """Samples to choose from, one row each, with the inputs that policies need.

    Attributes:
        n: number of samples.
        asked_by: name of the policy, for errors.
        logits: ``float[n, c]``; EL2N takes those of several models as ``float[r, n, c]``.
        labels: ``int64[n]``.
        losses: ``float[n]``.
        gradients: ``float[n, d]``; GraNd takes those of several models as ``float[r, n, d]``.
        embeddings: ``float[n, d]``.
        irreducible_losses: ``float[n]``, losses of a model that never saw these samples.
        validation_gradient: ``float[d]``, or a function of the step taken so far.
        history: ``[epochs, n]``, correctness (forgetting) or recorded scores (EL2N, GraNd).
        selected: ``int64[s]``, samples that are members already.
        epoch: number of the epoch, from 0.
        keys: ``uint64[n]``, by which equal scores are ordered; without them their places are.
    """

    n: int
    asked_by: str
    logits: Tensor | None = None
    labels: Tensor | None = None
    losses: Tensor | None = None
    gradients: Tensor | None = None
    embeddings: Tensor | None = None
    irreducible_losses: Tensor | None = None
    validation_gradient: Tensor | ValidationGradient | None = None
    history: Tensor | None = None
    selected: Tensor | None = None
    epoch: int = 0
    keys: KeyArray | None = None

    def need(self, name: str) -> Tensor:
        """Return an input; ``ValueError`` names a missing one."""
        tensor = getattr(self, name)
        if tensor is None:
            raise ValueError(f"{self.asked_by} needs {name}= ({SHAPES[name]})")
        assert isinstance(tensor, Tensor)  # noqa: S101 - for the type checker
        return tensor

    def sample_losses(self) -> Tensor:
        """Return the losses, or the cross-entropy of logits and labels."""
        if self.losses is not None:
            return self.losses
        if self.logits is None or self.labels is None:
            raise ValueError(f"{self.asked_by} needs losses= (float[n]), or logits= (float[n, c]) and labels= (int[n])")
        return functional.cross_entropy(self.logits, self.labels, reduction="none")

    def last_layer(self) -> Tensor:
        """Gradients of the cross-entropy with respect to the logits, ``p - y``: ``float[..., n, c]``."""
        if self.logits is None or self.labels is None:
            raise ValueError(f"{self.asked_by} needs logits= (float[n, c]) and labels= (int[n])")
        one_hot = functional.one_hot(self.labels, self.logits.shape[-1])
        return torch.softmax(self.logits, dim=-1) - one_hot.to(self.logits.dtype)

    def sample_gradients(self) -> Tensor:
        """Return the gradients, or those of the last layer."""
        if self.gradients is not None:
            return self.gradients
        if self.logits is None or self.labels is None:
            raise ValueError(f"{self.asked_by} needs gradients= (float[n, d]), or logits= (float[n, c]) and labels= (int[n])")
        return self.last_layer()

    def features(self) -> Tensor:
        """Return the embeddings, or the gradients without them."""
        if self.embeddings is None and self.gradients is None:
            raise ValueError(f"{self.asked_by} needs embeddings= (float[n, d])")
        return self.embeddings if self.embeddings is not None else self.need("gradients")

    def at(self, members: Tensor) -> "Pool":
        """Return the pool of some of the samples."""

        def of(tensor: Tensor | None, axis: int) -> Tensor | None:
            return None if tensor is None else tensor.index_select(axis, members.to(tensor.device))

        selected = None
        if self.selected is not None:
            place = torch.full((self.n,), -1, dtype=torch.int64)
            place[members.cpu()] = torch.arange(len(members))
            selected = place[self.selected]
            selected = selected[selected >= 0]
        return replace(
            self,
            n=len(members),
            logits=of(self.logits, -2),
            labels=of(self.labels, 0),
            losses=of(self.losses, 0),
            gradients=of(self.gradients, -2),
            embeddings=of(self.embeddings, 0),
            irreducible_losses=of(self.irreducible_losses, 0),
            history=of(self.history, 1),
            selected=selected,
            keys=None if self.keys is None else self.keys[members.cpu().numpy()],
        )

    def rng(self, seed: int) -> np.random.Generator:
        """Random generator of this policy in this epoch."""
        return rng_for(seed, "downsampling", self.asked_by, self.epoch)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Choice of a policy.

    Attributes:
        indices: ``int64[k]`` into the pool.
        weights: ``float[k]``.
        estimates: True if weighted sums estimate sums over the pool, so that a loss is divided by the pool's size. Otherwise
            weights are 1 and the loss is the mean over the chosen samples.
    """

    indices: Tensor
    weights: Tensor
    estimates: bool

    @classmethod
    def plain(cls, indices: Tensor) -> "Chosen":
        """Choose samples with weight 1."""
        return cls(indices, torch.ones(len(indices), dtype=torch.float64), estimates=False)


class Policy(Protocol):
    """Choice of ``k`` samples of a pool; a pure function of its arguments and its options.

    ``needs`` names the inputs that the training loop must compute: ``logits``, ``losses``, ``gradients``, ``embeddings``,
    ``validation_gradient``, ``irreducible_losses`` or ``history``; labels are always available.
    """

    @property
    def needs(self) -> frozenset[str]:
        """Names of the inputs beside labels."""

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Choose samples and their weights."""
