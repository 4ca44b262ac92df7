"""Networks for images: a small CNN, and residual networks."""

import math
from typing import Final, Literal

import torch
from torch import Tensor, nn

from modyn_dagster.spec.learning.models import CNNSpec, ResNetSpec
from modyn_dagster.training.models.dense import dense
from modyn_dagster.training.models.layout import Layout

_STAGES: Final = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3), 152: (3, 8, 36, 3)}
_WIDTHS: Final = (64, 128, 256, 512)


class Block(nn.Module):
    """Residual block: a few convolutions and a shortcut."""

    def __init__(self, body: nn.Sequential, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.body = body
        same = stride == 1 and n_in == n_out
        self.around: nn.Module = nn.Identity() if same else _convolution(n_in, n_out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[n, n_in, H, W]`` to ``[n, n_out, H / stride, W / stride]``."""
        return torch.relu(self.body(x) + self.around(x))


class ResNet(nn.Module):
    """Residual network: logits ``float32[n, n_outputs]`` of images ``float32[n, channels, H, W]``.

    Args:
        n_outputs: number of logits.
        layers: 18, 50 or 152.
        channels: channels of an image.
        stem: ``small`` begins with a 3x3 convolution and does not pool before the blocks, as the paper does for CIFAR.

    >>> tuple(ResNet(10, stem="small")(torch.zeros(2, 3, 8, 8)).shape)
    (2, 10)

    Source: He et al., Deep Residual Learning for Image Recognition, 2015, arXiv:1512.03385, table 1.
    """

    def __init__(
        self, n_outputs: int, *, layers: int = 18, channels: int = 3, stem: Literal["imagenet", "small"] = "imagenet"
    ) -> None:
        super().__init__()
        first = [
            nn.Conv2d(channels, 64, 7, 2, 3, bias=False) if stem == "imagenet" else nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
        ]
        pool = [nn.MaxPool2d(3, 2, 1)] if stem == "imagenet" else []
        self.stem = nn.Sequential(*first, nn.BatchNorm2d(64), nn.ReLU(inplace=True), *pool)
        blocks, n_in = [], 64
        for stage, (width, n_blocks) in enumerate(zip(_WIDTHS, _STAGES[layers], strict=True)):
            for i in range(n_blocks):
                stride = 2 if stage and i == 0 else 1
                n_out = width if layers == 18 else 4 * width
                body = _plain(n_in, width, stride) if layers == 18 else _bottleneck(n_in, width, stride)
                blocks.append(Block(body, n_in, n_out, stride))
                n_in = n_out
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(n_in, n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Compute logits. A mean over all pixels replaces adaptive pooling, whose gradient is not deterministic on CUDA."""
        logits: Tensor = self.head(self.blocks(self.stem(x)).mean(dim=(2, 3)))
        return logits


def _plain(n_in: int, width: int, stride: int) -> nn.Sequential:
    return nn.Sequential(*_convolution(n_in, width, 3, stride), nn.ReLU(inplace=True), *_convolution(width, width, 3, 1))


def _bottleneck(n_in: int, width: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        *_convolution(n_in, width, 1, 1),
        nn.ReLU(inplace=True),
        *_convolution(width, width, 3, stride),
        nn.ReLU(inplace=True),
        *_convolution(width, 4 * width, 1, 1),
    )


def _convolution(n_in: int, n_out: int, size: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(n_in, n_out, size, stride, size // 2, bias=False), nn.BatchNorm2d(n_out))


class Pictures(nn.Module):
    """Image network behind rows: reshapes them to ``shape`` and scales whole numbers to 0..1.

    Args:
        shape: channels, height and width.
        body: network for images.
    """

    def __init__(self, shape: tuple[int, int, int], body: nn.Module) -> None:
        super().__init__()
        self.shape, self.body = shape, body

    def forward(self, x: Tensor) -> Tensor:
        """Compute logits of ``[n, values]`` or ``[n, C, H, W]``, floats or uint8."""
        x = x if x.is_floating_point() else x.to(next(self.body.parameters()).dtype) / 255
        logits: Tensor = self.body(x.reshape(-1, *self.shape))
        return logits


def cnn(spec: CNNSpec, layout: Layout, n_outputs: int) -> nn.Module:
    """Build a small CNN: convolution, batch norm, ReLU and pooling per entry of ``channels``, a hidden layer, outputs.

    >>> from modyn_dagster.spec.learning.models import CNNSpec
    >>> from modyn_dagster.training.columns.input import Input
    >>> layout = Layout((Input("features", (), (1, 8, 8), tabular=False, dtype=None),))
    >>> tuple(cnn(CNNSpec(name="cnn"), layout, n_outputs=10)(torch.zeros(2, 1, 8, 8)).shape)
    (2, 10)

    Source: no published network; batch normalization by Ioffe and Szegedy, ICML 2015.
    """
    shape = _shape(spec.shape, layout)
    layers: list[nn.Module] = []
    n_in, height, width = shape
    for n_channels in spec.channels:
        layers += [nn.Conv2d(n_in, n_channels, 3, padding=1), nn.BatchNorm2d(n_channels), nn.ReLU(), nn.MaxPool2d(2)]
        n_in, height, width = n_channels, height // 2, width // 2
    if not height * width:
        raise ValueError(f"images of {shape[1]} x {shape[2]} pixels are too small; use images of at least 8 x 8")
    head = dense(n_in * height * width, [spec.hidden], n_outputs, dropout=spec.dropout)
    return Pictures(shape, nn.Sequential(*layers, nn.Flatten(), *head))


def resnet(spec: ResNetSpec, layout: Layout, n_outputs: int) -> nn.Module:
    """Build a residual network with the number of layers in its name."""
    shape = _shape(spec.shape, layout)
    layers = int(spec.name.removeprefix("resnet"))
    return Pictures(shape, ResNet(n_outputs, layers=layers, channels=shape[0], stem=spec.stem))


def _shape(requested: tuple[int, int, int] | None, layout: Layout) -> tuple[int, int, int]:
    shape = layout.inputs[0].shape
    if requested is not None:
        if math.prod(shape) != math.prod(requested):
            raise ValueError(f"shape {list(requested)} has {math.prod(requested)} values, a sample has {math.prod(shape)}")
        return requested
    if len(shape) != 3:
        raise ValueError(
            f"a sample must be an image [channels, height, width], not {list(shape)}; give `shape` for rows of numbers"
        )
    channels, height, width = shape
    return channels, height, width
