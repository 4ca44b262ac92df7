"""Scaling of images for networks of other libraries."""

from typing import cast

import torch
from torch import Tensor, nn

from modyn_dagster.spec.learning.libraries import ImageNetworkSpec, TimmSpec, TorchvisionSpec
from modyn_dagster.training.models.layout import Layout


class Pixels(nn.Module):
    """Images as networks expect them: of the spec's shape, whole numbers as 0 to 1, then ``(value - mean) / std``.

    Args:
        spec: shape, mean and deviation.

    >>> from modyn_dagster.spec.learning.libraries import TimmSpec
    >>> pixels = Pixels(TimmSpec(name="timm", network="resnet18", mean=[0.5], std=[0.5]))
    >>> pixels(torch.tensor([[[[0, 255]]]], dtype=torch.uint8))
    tensor([[[[-1.,  1.]]]])
    """

    def __init__(self, spec: ImageNetworkSpec) -> None:
        super().__init__()
        self._shape = spec.shape
        # Constants of the spec, which no stored model needs to hold.
        self.register_buffer("_mean", torch.tensor(spec.mean or [0.0]).view(-1, 1, 1), persistent=False)
        self.register_buffer("_std", torch.tensor(spec.std or [1.0]).view(-1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Scale ``[n, C, H, W]``, or rows of a spec with a shape."""
        mean, std = cast(Tensor, self._mean), cast(Tensor, self._std)
        images = images if images.is_floating_point() else images.to(mean.dtype) / 255
        return ((images if self._shape is None else images.reshape(-1, *self._shape)) - mean) / std


class ScaledNetwork(nn.Module):
    """Network for images behind their scaling.

    Args:
        spec: shape, mean and deviation.
        network: network for images.
    """

    def __init__(self, spec: ImageNetworkSpec, network: nn.Module) -> None:
        super().__init__()
        self._pixels, self.network = Pixels(spec), network

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits."""
        logits: Tensor = self.network(self._pixels(images))
        return logits


def torchvision_network(spec: TorchvisionSpec, _layout: Layout, n_outputs: int) -> nn.Module:
    """Build a classifier of torchvision with fresh weights; ``ValueError`` for a name or a setting that it refuses."""
    from torchvision import models

    if spec.network not in models.list_models(module=models):
        raise ValueError(f"torchvision.models has no classifier {spec.network!r}")
    try:
        return ScaledNetwork(spec, models.get_model(spec.network, weights=None, num_classes=n_outputs, **spec.config))
    except TypeError as error:
        raise ValueError(f"torchvision refused the settings: {error}") from error


def timm_network(spec: TimmSpec, layout: Layout, n_outputs: int) -> nn.Module:
    """Build a classifier of timm with fresh weights, for the channels of the images; ``ValueError`` for what it refuses."""
    import timm

    channels = (spec.shape or layout.inputs[0].shape)[0]
    settings = {"in_chans": channels} | spec.config
    try:
        return ScaledNetwork(spec, timm.create_model(spec.network, pretrained=False, num_classes=n_outputs, **settings))
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"timm refused it: {error}") from error
