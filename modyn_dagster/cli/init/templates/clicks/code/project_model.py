"""A model of this project: numbers beside embeddings of categories. Pipelines name it as ``factory``."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class Network(nn.Module):
    """Embeddings and two layers: outputs ``float32[n, n_outputs]`` of the groups ``numeric`` and ``categorical``."""

    def __init__(self, n_features: Mapping[str, int], n_outputs: int, rows: int, width: int) -> None:
        super().__init__()
        self.rows = rows
        self.embeddings = nn.ModuleList(nn.Embedding(rows, width) for _ in range(n_features["categorical"]))
        n_inputs = n_features["numeric"] + width * n_features["categorical"]
        self.layers = nn.Sequential(nn.Linear(n_inputs, 2 * width), nn.ReLU(), nn.Linear(2 * width, n_outputs))

    def forward(self, numeric: Tensor, categorical: Tensor) -> Tensor:
        """Compute a logit per class of ``numeric: float32[n, k]`` and ``categorical: int64[n, m]``."""
        looked_up = [table(categorical[:, i] % self.rows) for i, table in enumerate(self.embeddings)]
        outputs: Tensor = self.layers(torch.cat([numeric, *looked_up], dim=1))
        return outputs


def build(n_features: Mapping[str, int], n_outputs: int, rows: int = 64, width: int = 8) -> nn.Module:
    """Build the model; the platform gives the first two, ``config`` of the pipeline the others."""
    return Network(n_features, n_outputs, rows, width)
