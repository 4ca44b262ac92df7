"""User code of the tiny project that hangs, each at another hook; a file beside all state says that it does."""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from modyn_dagster.pipeline.event import Event
from modyn_dagster.triggering import Decision, Stream, TriggeringPolicy


def hang_at(hook: str) -> None:
    (Path(os.environ["MODYN_HOME"]) / f"{hook}.hangs").touch()
    while True:
        time.sleep(0.1)


def parser(blobs: list[bytes]) -> dict[str, Any]:
    hang_at("parser")
    return {}


def model(n_features: int, n_outputs: int) -> nn.Module:
    hang_at("model")
    return nn.Linear(n_features, n_outputs)


def loss() -> nn.Module:
    return Loss()


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    hang_at("optimizer")
    return torch.optim.SGD(parameters)


def downsampling() -> Callable[..., Any]:
    hang_at("downsampling")
    return downsampling


def expression(sample: Any) -> Any:
    hang_at("expression")
    return sample.key


class Loss(nn.Module):
    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        hang_at("loss")
        return outputs.sum(dim=1)


def transform(features: Tensor) -> Tensor:
    hang_at("transform")
    return features


def metric(outputs: Any, targets: Any) -> float:
    hang_at("metric")
    return 0.0


def hook(event: Event) -> None:
    hang_at("hook")


def vote(votes: dict[str, bool]) -> bool:
    hang_at("vote")
    return False


class Policy(TriggeringPolicy):
    def next_point(self, cursor: int, stream: Stream) -> int | None:
        hang_at("policy")
        return None

    def decide(self, point: int, measurement: object = None) -> Decision:
        return Decision(False, point, "never")

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass
