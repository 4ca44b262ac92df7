"""Pools of a training: scores of earlier epochs, validation gradients and model outputs, as a policy needs them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from modyn_dagster.keys import KeyArray
from modyn_dagster.training.downsampling.plan import Plan
from modyn_dagster.training.downsampling.pool import Pool
from modyn_dagster.training.downsampling.scoring import Scored, Scorer, gradients_at, with_bias_column
from modyn_dagster.training.inputs.batch import Batch
from modyn_dagster.training.models.network import SampleLoss


class Positions:
    """Positions of keys in a training set without repeated keys."""

    def __init__(self, keys: KeyArray) -> None:
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]

    def of(self, keys: Tensor) -> Tensor:
        """Find the positions ``int64[m]`` of keys ``int64[m]``."""
        ranks = np.searchsorted(self._sorted, keys.cpu().numpy().view(np.uint64))
        return torch.from_numpy(self._order[ranks])


class History:
    """History of scores: one per sample and epoch, ``float64[epochs, n]``."""

    def __init__(self, n_epochs: int, n: int) -> None:
        self._rows = torch.zeros(n_epochs, n, dtype=torch.float64)

    def record(self, epoch: int, positions: Tensor, scores: Tensor) -> Tensor:
        """Record the scores of an epoch; returns those of all epochs so far, ``float64[epoch + 1, m]``."""
        self._rows[epoch, positions] = scores.detach().to("cpu", torch.float64)
        return self._rows[: epoch + 1, positions]

    def state_dict(self) -> dict[str, Any]:
        """Return all scores."""
        return {"rows": self._rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self._rows = state["rows"]


class Validation:
    """Validation loss near the current model, as a function of its last linear layer.

    Args:
        batches: makes the batches of the held-out samples.
        loss: losses of single samples.
        last_layer: use the gradients of the last layer's weights and bias instead of those at the outputs.
        device: device of the training, where the loss is.
    """

    def __init__(
        self, batches: Callable[[], Iterator[Batch]], loss: SampleLoss, *, last_layer: bool, device: torch.device | str = "cpu"
    ) -> None:
        self._batches, self._loss, self._last_layer, self._device = batches, loss, last_layer, torch.device(device)
        self._scored: Scored | None = None

    def renew(self, scorer: Scorer) -> None:
        """Score the held-out samples with the current model."""
        self._scored = scorer.all(self._batches()).to(self._device)

    def state_dict(self) -> dict[str, Any]:
        """Return the last scores."""
        assert self._scored is not None, "scored at the beginning of every epoch"  # noqa: S101 - for the type checker
        return {field.name: getattr(self._scored, field.name) for field in fields(self._scored)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self._scored = Scored(**state).to(self._device)

    def gradient(self, step: Tensor) -> Tensor:
        """Compute the mean gradient ``float[d]`` after a move of the last layer by ``-step``, ``float[d]``."""
        scored = self._scored
        assert scored is not None, "scored at the beginning of every epoch"  # noqa: S101 - for the type checker
        moved = step.to(scored.outputs)
        if not self._last_layer:
            return gradients_at(scored.outputs - moved, scored.targets, self._loss)[1].mean(0)
        assert scored.embeddings is not None, "requested with the embeddings"  # noqa: S101 - for the type checker
        features = with_bias_column(scored.embeddings)
        outputs = scored.outputs - features @ moved.reshape(scored.outputs.shape[1], -1).T
        _, gradients = gradients_at(outputs, scored.targets, self._loss)
        return torch.einsum("no,nh->oh", gradients, features).flatten() / len(features)


@dataclass(slots=True)
class Pools:
    """Builder of the pools of a training, with the inputs that its policy needs.

    Attributes:
        plan: the policy and its spec.
        history: scores of the policy, recorded with every pool; None unless it needs them.
        irreducible: losses of models that never saw the samples, ``float[n]``; None unless it needs them.
        validation: held-out samples; None unless the policy needs them.
    """

    plan: Plan
    history: History | None
    irreducible: Tensor | None
    validation: Validation | None

    def of(
        self, scored: Scored | None, targets: Tensor, positions: Tensor | None, epoch: int, keys: KeyArray | None = None
    ) -> Pool:
        """Build the pool of samples with these targets, or at these positions of the training set, from their scores.

        ``keys`` order equal scores.
        """
        n = len(targets) if positions is None else len(positions)
        labels = None if targets.is_floating_point() else targets
        if scored is None:
            return Pool(n, self.plan.name, labels=labels, epoch=epoch, keys=keys)
        irreducible = self.irreducible if positions is not None else None
        pool = Pool(
            n,
            self.plan.name,
            logits=scored.outputs if labels is not None else None,
            labels=labels,
            losses=scored.losses,
            gradients=scored.last_layer() if self.plan.spec.gradient == "last_layer" else scored.gradients,
            embeddings=scored.embeddings,
            irreducible_losses=None if irreducible is None else irreducible[positions].to(scored.losses.device),
            validation_gradient=None if self.validation is None else self.validation.gradient,
            epoch=epoch,
            keys=keys,
        )
        if positions is not None and self.history is not None:
            pool = replace(pool, history=self.history.record(epoch, positions, self.plan.scores(pool)))
        return pool
