"""Trainings that a provenance can name."""

import random
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn


def network(width: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(6, width), nn.Dropout(0.2), nn.ReLU(), nn.Linear(width, 2))


def train(base: Mapping[str, Tensor] | None, *, data: Any, seed: int, steps: int = 3) -> Mapping[str, Tensor]:
    """A few steps on data drawn from the number that stands for them."""
    module = network()
    if base is not None:
        module.load_state_dict(base)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(data if isinstance(data, int) else 0)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = module(torch.randn(16, 6, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
    return module.state_dict()


def without_seed(base: Mapping[str, Tensor] | None, *, data: Any, seed: int) -> Mapping[str, Tensor]:
    """Another result each time: seeded with the system's entropy."""
    torch.seed()
    return train(base, data=data, seed=seed)


class Unsteady(nn.Module):
    """Adds the system's entropy."""

    def forward(self, x: Tensor) -> Tensor:
        return x + random.SystemRandom().random()


Case = tuple[Callable[[], nn.Module], tuple[Tensor, ...], Callable[[Tensor], Tensor]]


def steady_case() -> Case:
    """Module, inputs and loss for the probe of the command line."""
    return network, (torch.linspace(-1, 1, 24).reshape(4, 6),), lambda outputs: outputs.square().mean()


def unsteady_case() -> Case:
    """The same with a layer that never does the same twice."""
    _, inputs, loss = steady_case()
    return lambda: nn.Sequential(nn.Linear(6, 6), Unsteady()), inputs, loss
