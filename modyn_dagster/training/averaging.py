"""A moving average of the weights over the steps of a training."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class MovingAverage:
    """Of all parameters; buffers, such as the statistics of batch norm, are the model's own.

    After step t the average is ``d * average + (1 - d) * weights``, d the smaller of ``decay`` and ``(1 + t) / (10 + t)``.

    Args:
        body: of the model, before its first step.
        decay: share of the past.
    """

    def __init__(self, body: nn.Module, decay: float) -> None:
        self._decay, self._n = decay, 0
        self._weights = list(body.parameters())
        self._averages = [parameter.detach().clone() for parameter in self._weights]

    @torch.no_grad()
    def update(self) -> None:
        """An optimizer step is over."""
        self._n += 1
        decay = min(self._decay, (1 + self._n) / (10 + self._n))
        get_ema_multi_avg_fn(decay)(self._averages, self._weights, self._n)  # type: ignore[no-untyped-call]  # torch has no type for it

    @torch.no_grad()
    def apply(self) -> None:
        """The averages become the weights."""
        for weight, average in zip(self._weights, self._averages):
            weight.copy_(average)

    @torch.no_grad()
    def swapped(self) -> list[Tensor]:
        """As ``apply``; returns what the weights were."""
        before = [weight.detach().clone() for weight in self._weights]
        self.apply()
        return before

    @torch.no_grad()
    def swap_back(self, before: list[Tensor]) -> None:
        """Undo ``swapped``."""
        for weight, was in zip(self._weights, before):
            weight.copy_(was)

    def state_dict(self) -> dict[str, Any]:
        """The averages, and how many steps they are of."""
        return {"n": self._n, "averages": list(self._averages)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another one was."""
        self._n = int(state["n"])
        for average, was in zip(self._averages, state["averages"], strict=True):
            average.copy_(was)
