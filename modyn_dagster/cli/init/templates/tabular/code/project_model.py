"""A model of this project: a network of standardised numbers. Pipelines name it as ``factory``."""

from torch import Tensor, nn


class Network(nn.Module):
    """Two hidden layers: outputs ``float32[n, n_outputs]`` of rows ``float32[n, n_features]``."""

    def __init__(self, n_features: int, n_outputs: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(n_features, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, n_outputs)
        )

    def forward(self, features: Tensor) -> Tensor:
        """Compute outputs: a logit per class, or the one number of a regression."""
        outputs: Tensor = self.layers(features)
        return outputs


def build(n_features: int, n_outputs: int, width: int = 32) -> nn.Module:
    """Build the model; the platform gives the first two, ``config`` of the pipeline the others."""
    return Network(n_features, n_outputs, width)
