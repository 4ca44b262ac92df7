"""User code as a project would have it; tests name it by import path."""

import random
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

Arrays = dict[str, npt.NDArray[np.generic]]
Loss = Callable[[Tensor, Tensor], Tensor]


def linear(n_features: int, n_outputs: int, bias: bool = True) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(n_features, n_outputs, bias=bias))


class Identity(nn.Module):
    """Returns its input, and has a parameter so that it can be trained."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.reshape(len(inputs), -1).to(torch.float32) + self.shift


def identity(n_features: int, n_outputs: int) -> nn.Module:
    return Identity()


class TiedLayers(nn.Module):
    """Two layers of one weight."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(n_features, n_features)
        self.second = nn.Linear(n_features, n_features)
        self.second.weight = self.first.weight
        self.head = nn.Linear(n_features, n_outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.second(self.first(inputs)))
        return outputs


def tied(n_features: int, n_outputs: int) -> nn.Module:
    return TiedLayers(n_features, n_outputs)


class Restless(nn.Module):
    """Draws from every generator a model can reach."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(n_features, n_outputs)
        self.dropout = nn.Dropout(0.5)

    def forward(self, inputs: Tensor) -> Tensor:
        noise = random.getrandbits(20) / 2**20 + float(np.random.random())
        outputs: Tensor = self.layer(self.dropout(inputs)) + (noise if self.training else 0.0)
        return outputs


def restless(n_features: int, n_outputs: int) -> nn.Module:
    return Restless(n_features, n_outputs)


def not_a_module(n_features: int, n_outputs: int) -> object:
    return object()


def frozen(n_features: int, n_outputs: int) -> nn.Module:
    return nn.Linear(n_features, n_outputs).requires_grad_(False)


class Failing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, inputs: Tensor) -> Tensor:
        raise KeyError("no such layer")


def failing(n_features: int, n_outputs: int) -> nn.Module:
    return Failing()


def scaled_cross_entropy(scale: float = 1.0) -> Loss:
    return lambda outputs, targets: scale * nn.functional.cross_entropy(outputs, targets, reduction="none")


def mean_loss() -> Loss:
    return nn.functional.cross_entropy


def poisoned_loss() -> Loss:
    """Becomes NaN at its third step."""
    steps = 0

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        nonlocal steps
        steps += 1
        losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
        return losses * float("nan") if steps == 3 else losses

    return loss


def plain_sgd(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=lr)


def not_an_optimizer(parameters: Iterable[nn.Parameter]) -> object:
    return object()


def two_numbers(blobs: list[bytes]) -> Arrays:
    """Columns from bytes such as ``b"1.5,2"``."""
    rows = np.array([[float(part) for part in blob.split(b",")] for blob in blobs])
    return {"left": rows[:, 0], "right": rows[:, 1]}


def images(blobs: list[bytes]) -> Arrays:
    """Four bytes are an image of 2 x 2 pixels."""
    return {"features": np.stack([np.frombuffer(blob, np.uint8).reshape(2, 2) for blob in blobs])}


def one_too_few(blobs: list[bytes]) -> Arrays:
    return {"left": np.zeros(len(blobs) - 1)}


def unparsable(blobs: list[bytes]) -> Arrays:
    raise ValueError("bad magic number")


def a_list(blobs: list[bytes]) -> list[int]:
    return []


NOT_CALLABLE = 7
