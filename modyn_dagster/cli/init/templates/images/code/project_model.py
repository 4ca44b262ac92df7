"""A model of this project: two convolutions. Pipelines name it as ``factory``."""

from torch import Tensor, nn


class Network(nn.Module):
    """Convolutions and their mean over the picture: outputs ``float32[n, n_outputs]`` of ``float32[n, 1, H, W]``."""

    def __init__(self, n_outputs: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(width, width, 3, padding=1), nn.ReLU()
        )
        self.head = nn.Linear(width, n_outputs)

    def forward(self, pictures: Tensor) -> Tensor:
        """Compute a logit per class."""
        outputs: Tensor = self.head(self.layers(pictures).mean((2, 3)))
        return outputs


def build(n_features: int, n_outputs: int, width: int = 16) -> nn.Module:  # noqa: ARG001 - the platform gives it
    """Build the model; the platform gives the first two, ``config`` of the pipeline the others."""
    return Network(n_outputs, width)
