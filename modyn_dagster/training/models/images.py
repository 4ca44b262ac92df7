"""Networks for images, whichever way these arrive."""

import math

from torch import Tensor, nn

from modyn_dagster.spec.models import CNNSpec, ResNetSpec
from modyn_dagster.training.layout import Layout
from modyn_dagster.training.models.dense import dense
from modyn_dagster.training.models.resnet import ResNet


class Pictures(nn.Module):
    """What a network of images sees: rows become ``shape``, whole numbers become 0 to 1."""

    def __init__(self, shape: tuple[int, int, int], body: nn.Module) -> None:
        super().__init__()
        self.shape, self.body = shape, body

    def forward(self, x: Tensor) -> Tensor:
        """``[n, values]`` or ``[n, C, H, W]``, floats or uint8."""
        x = x if x.is_floating_point() else x.to(next(self.body.parameters()).dtype) / 255
        logits: Tensor = self.body(x.reshape(-1, *self.shape))
        return logits


def cnn(spec: CNNSpec, layout: Layout, n_outputs: int) -> nn.Module:
    """Three times convolution, batch norm, ReLU and pooling; a hidden layer; outputs."""
    shape = _shape(spec.shape, layout)
    layers: list[nn.Module] = []
    n_in, height, width = shape
    for n_channels in spec.channels:
        layers += [nn.Conv2d(n_in, n_channels, 3, padding=1), nn.BatchNorm2d(n_channels), nn.ReLU(), nn.MaxPool2d(2)]
        n_in, height, width = n_channels, height // 2, width // 2
    if not height * width:
        raise ValueError(f"images of {shape[1]} x {shape[2]} pixels are too small; it takes 8 x 8 or more")
    head = dense(n_in * height * width, [spec.hidden], n_outputs, dropout=spec.dropout)
    return Pictures(shape, nn.Sequential(*layers, nn.Flatten(), *head))


def resnet(spec: ResNetSpec, layout: Layout, n_outputs: int) -> nn.Module:
    """As many layers as its name says."""
    shape = _shape(spec.shape, layout)
    layers = int(spec.name.removeprefix("resnet"))
    return Pictures(shape, ResNet(n_outputs, layers=layers, channels=shape[0], stem=spec.stem))


def _shape(given: tuple[int, int, int] | None, layout: Layout) -> tuple[int, int, int]:
    found = layout.inputs[0].shape
    if given is not None:
        if math.prod(found) != math.prod(given):
            raise ValueError(f"shape {list(given)} has {math.prod(given)} values, a sample has {math.prod(found)}")
        return given
    if len(found) != 3:
        raise ValueError(
            f"a sample must be an image [channels, height, width], not {list(found)}; give `shape` for rows of numbers"
        )
    channels, height, width = found
    return channels, height, width
