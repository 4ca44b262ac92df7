"""Residual networks in plain torch (He et al., "Deep Residual Learning for Image Recognition", arXiv:1512.03385, Table 1)."""

from typing import Final, Literal

import torch
from torch import Tensor, nn

_STAGES: Final = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3), 152: (3, 8, 36, 3)}
_WIDTHS: Final = (64, 128, 256, 512)


class Block(nn.Module):
    """A few convolutions and a way around them."""

    def __init__(self, body: nn.Sequential, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.body = body
        same = stride == 1 and n_in == n_out
        self.around: nn.Module = nn.Identity() if same else _convolution(n_in, n_out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """``[n, n_in, H, W]`` to ``[n, n_out, H / stride, W / stride]``."""
        return torch.relu(self.body(x) + self.around(x))


class ResNet(nn.Module):
    """Logits ``float32[n, n_outputs]`` of images ``float32[n, channels, H, W]``, of 18, 50 or 152 layers.

    With the stem ``small`` the first convolution is 3x3 and nothing is pooled before the blocks, as the paper does for CIFAR.
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
        """A mean over all places, whose gradient is deterministic on CUDA too, in place of adaptive pooling."""
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
