"""A network of a project's own, with what fine-tuning is about: a stem with batch norm, numbered blocks and a head."""

import torch
from torch import Tensor, nn


class Tuned(nn.Module):
    def __init__(self, n_features: int, n_outputs: int, width: int) -> None:
        super().__init__()
        self.stem = nn.Linear(n_features, width)
        self.norm = nn.BatchNorm1d(width)
        self.blocks = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.head = nn.Linear(width, n_outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.norm(self.stem(inputs))
        for block in self.blocks:
            hidden = hidden + torch.relu(block(hidden))
        outputs: Tensor = self.head(hidden)
        return outputs


def tuned(n_features: int, n_outputs: int, width: int = 6) -> nn.Module:
    return Tuned(n_features, n_outputs, width)
