"""User code of the tiny project: good, slow and bad models and losses, named by import path in its pipelines."""

import socket
import time
from pathlib import Path

import torch
from torch import Tensor, nn


def linear(n_features: int, n_outputs: int) -> nn.Module:
    return nn.Linear(n_features, n_outputs)


def gated(n_features: int, n_outputs: int, gate: str) -> nn.Module:
    """Training lasts for as long as the file ``gate`` is there, and ``gate`` with the suffix ``.waited`` says that it does."""
    while Path(gate).exists():
        Path(gate).with_suffix(".waited").touch()
        time.sleep(0.05)
    return nn.Linear(n_features, n_outputs)


class GatedPredictions(nn.Linear):
    """Predictions last for as long as the file ``gate`` is there; trainings do not wait."""

    def __init__(self, n_features: int, n_outputs: int, gate: str) -> None:
        super().__init__(n_features, n_outputs)
        self.gate = Path(gate)

    def forward(self, inputs: Tensor) -> Tensor:
        while not self.training and self.gate.exists():
            time.sleep(0.05)
        return super().forward(inputs)


class GatedSteps(nn.Linear):
    """The third step of a training lasts while the file ``gate`` is there; each host that waits writes a file beside it."""

    def __init__(self, n_features: int, n_outputs: int, gate: str) -> None:
        super().__init__(n_features, n_outputs)
        self.gate, self.steps = Path(gate), 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.steps += self.training
        while self.training and self.steps == 3 and self.gate.exists():
            self.gate.with_suffix(f".{socket.gethostname()}").touch()
            time.sleep(0.05)
        return super().forward(inputs)


def slow(n_features: int, n_outputs: int, seconds: float) -> nn.Module:
    """A training takes so long at least; and there are weights to store."""
    time.sleep(seconds)
    return nn.Sequential(nn.Linear(n_features, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, n_outputs))


def too_wide(n_features: int, n_outputs: int) -> nn.Module:
    return nn.Linear(n_features, n_outputs + 3)


class NotANumber(nn.Module):
    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.sum(dim=1) * torch.nan


def not_a_number() -> nn.Module:
    return NotANumber()


def refusing(flag: str) -> nn.Module:
    """A loss that cannot be had while the file ``flag`` is there."""
    if Path(flag).exists():
        raise RuntimeError("the flag is up")
    return nn.CrossEntropyLoss(reduction="none")
