"""Objectives with a prediction for each token of a text: their loss and their measures."""

import torch
from torch import Tensor
from torch.nn import functional

from modyn_dagster.spec.tasks.objectives import IGNORED
from modyn_dagster.training.objectives.objective import Objective, OutputForm


class PerToken(Objective):
    """Cross-entropy of one class per token, be it a token of the vocabulary or a tag: the mean of a text's tokens is its loss.

    Its first measures are the sum of the cross-entropies of each text, the number of tokens predicted right, and that of
    predicted tokens, so that metrics can weigh texts by their tokens.

    Args:
        n_classes: classes of a token.
        length: tokens of a text.
    """

    n_measures = 3

    def __init__(self, n_classes: int, length: int) -> None:
        self.n_outputs = n_classes
        self.form = self.answer = OutputForm((length, n_classes))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Compute the mean cross-entropy of each text's predicted tokens, ``float[n]``; zero for a text without any."""
        return self._entropies(outputs, targets).sum(1) / (targets != IGNORED).sum(1).clamp(min=1)

    def measures(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Compute sums of cross-entropies, tokens predicted right and predicted tokens, ``float[n, 3]``."""
        predicted = targets != IGNORED
        right = (self._named(outputs, targets) == targets) & predicted
        entropies = self._entropies(outputs, targets).sum(1, dtype=torch.float64)
        return torch.stack([entropies, right.sum(1), predicted.sum(1)], 1).to(outputs.dtype)

    def _named(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the class with the largest output of every token, ``int64[n, length]``."""
        return outputs.view(*targets.shape, -1).argmax(2)

    def _entropies(self, outputs: Tensor, targets: Tensor) -> Tensor:
        logits = outputs.reshape(-1, self.n_outputs)
        flat = functional.cross_entropy(logits, targets.reshape(-1), reduction="none", ignore_index=IGNORED)
        return flat.view(targets.shape)
