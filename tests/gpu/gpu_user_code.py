"""User code with tensors of its own, which must follow the model to its device."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class WeightedLoss(nn.Module):
    """Cross-entropy with a weight for each class."""

    weights: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weights", torch.tensor([1.0, 3.0]))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets, weight=self.weights, reduction="none")


def weighted_loss() -> nn.Module:
    return WeightedLoss()
