"""Samples set aside, and the gradient of their loss after a step that has not been taken."""

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from modyn_dagster.training.batch import Batch
from modyn_dagster.training.downsampling.scoring import Scored, Scorer, gradients_at, with_one
from modyn_dagster.training.losses import SampleLoss


class Validation:
    """The validation loss around the model as it is, by its last linear layer alone.

    Args:
        batches: makes the batches of the samples set aside.
        loss: of single samples.
        last_layer: gradients are those of the last layer's weights and bias, not those at the outputs.
    """

    def __init__(self, batches: Callable[[], Iterator[Batch]], loss: SampleLoss, *, last_layer: bool) -> None:
        self._batches, self._loss, self._last_layer = batches, loss, last_layer
        self._scored: Scored | None = None

    def renew(self, scorer: Scorer) -> None:
        """Score the samples with the model as it is now."""
        self._scored = scorer.all(self._batches())

    def state_dict(self) -> dict[str, Any]:
        """The scores of the last renewal."""
        assert self._scored is not None, "scored at the beginning of every epoch"  # noqa: S101 - for the type checker
        return {each.name: getattr(self._scored, each.name) for each in fields(self._scored)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with another one's scores."""
        self._scored = Scored(**state)

    def gradient(self, step: Tensor) -> Tensor:
        """The mean gradient after the last layer was moved by ``-step``: ``float[d]`` for ``float[d]``."""
        scored = self._scored
        assert scored is not None, "scored at the beginning of every epoch"  # noqa: S101 - for the type checker
        moved = step.to("cpu", scored.outputs.dtype)
        if not self._last_layer:
            return gradients_at(scored.outputs - moved, scored.targets, self._loss)[1].mean(0)
        assert scored.embeddings is not None, "asked for with the embeddings"  # noqa: S101 - for the type checker
        features = with_one(scored.embeddings)
        outputs = scored.outputs - features @ moved.reshape(scored.outputs.shape[1], -1).T
        _, gradients = gradients_at(outputs, scored.targets, self._loss)
        return torch.einsum("no,nh->oh", gradients, features).flatten() / len(features)
