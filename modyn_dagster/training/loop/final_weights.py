"""Final weights of a training: those of the last step, their moving average, or those of the best epoch."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from modyn_dagster.spec.learning.optimizers import EarlyStoppingSpec
from modyn_dagster.spec.tasks.task import RankingTask
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.downsampling.scoring import Model, Scorer
from modyn_dagster.training.inputs.batches import Batches, in_order
from modyn_dagster.training.inputs.group_order import GroupOrder
from modyn_dagster.training.models.network import Network
from modyn_dagster.training.team.sharding import part_of


class MovingAverage:
    """Moving average of all parameters. Buffers, such as the statistics of batch norm, are not averaged.

    After step t the average is ``d * average + (1 - d) * weights``, d the smaller of ``decay`` and ``(1 + t) / (10 + t)``.

    Args:
        body: body of the model, before its first step.
        decay: weight of the past.
    """

    def __init__(self, body: nn.Module, decay: float) -> None:
        self._decay, self._n = decay, 0
        self._weights = list(body.parameters())
        self._averages = [parameter.detach().clone() for parameter in self._weights]

    @torch.no_grad()
    def update(self) -> None:
        """Update the averages after an optimizer step."""
        self._n += 1
        decay = min(self._decay, (1 + self._n) / (10 + self._n))
        get_ema_multi_avg_fn(decay)(self._averages, self._weights, self._n)  # type: ignore[no-untyped-call]  # torch has no type for it

    @torch.no_grad()
    def apply(self) -> None:
        """Replace the weights by their averages."""
        for weight, average in zip(self._weights, self._averages):
            weight.copy_(average)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Replace the weights by their averages within the block."""
        originals = [weight.detach().clone() for weight in self._weights]
        self.apply()
        yield
        with torch.no_grad():
            for weight, original in zip(self._weights, originals):
                weight.copy_(original)

    def state_dict(self) -> dict[str, Any]:
        """Return the averages and the number of steps."""
        return {"n": self._n, "averages": list(self._averages)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self._n = int(state["n"])
        for average, saved in zip(self._averages, state["averages"], strict=True):
            average.copy_(part_of(saved, average))


class EarlyStopping:
    """Early stopping by the mean loss after every epoch.

    Args:
        spec: patience and smallest improvement.
        loss: measures the mean loss of the current model on the calibration samples.
        network: network whose best weights are kept.
        average: moving average of its weights, which is measured and kept instead of them; None without one.
    """

    def __init__(
        self, spec: EarlyStoppingSpec, loss: Callable[[], float], network: Network, average: MovingAverage | None
    ) -> None:
        self._spec, self._loss, self._network, self._average = spec, loss, network, average
        self.losses: list[float] = []
        self._best, self._n_worse = math.inf, 0
        self._weights: dict[str, Tensor] | None = None

    def end_epoch(self) -> bool:
        """End an epoch; True if it was the last one."""
        with nullcontext() if self._average is None else self._average.applied():
            return self._measure()

    def _measure(self) -> bool:
        self.losses.append(self._loss())
        # The first epoch is the best so far, whatever its loss.
        if len(self.losses) == 1 or self.losses[-1] < self._best - self._spec.min_delta:
            self._best, self._n_worse = self.losses[-1], 0
            if self._spec.restore_best:
                self._weights = {name: tensor.detach().clone() for name, tensor in self._network.state_dict().items()}
        else:
            self._n_worse += 1
        return self._n_worse >= self._spec.patience

    def restore(self) -> None:
        """Set the final weights: those of the best epoch if the spec says so, else those of the last."""
        if self._weights is not None:
            self._network.load_state_dict(self._weights)
        elif self._average is not None:
            self._average.apply()

    def state_dict(self) -> dict[str, Any]:
        """Return losses and best weights."""
        return {"losses": self.losses, "best": self._best, "n_worse": self._n_worse, "weights": self._weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self.losses, self._best, self._n_worse = state["losses"], state["best"], state["n_worse"]
        own, weights = self._network.state_dict(), state["weights"]
        self._weights = None if weights is None else {name: part_of(tensor, own[name]) for name, tensor in weights.items()}


def calibration_loss(batches: Batches, spec: TrainingSpec, model: Model, source: str) -> Callable[[], float]:
    """Return a function that measures the mean loss of a model on the samples of ``batches``, in evaluation mode."""
    ordered = in_order(spec)
    # Samples of a ranking are compared with those of their group in the batch.
    subset = GroupOrder.of(batches, spec).in_order() if isinstance(spec.task, RankingTask) else None
    scorer = Scorer(model, gradients=False, embeddings=False, source=source)

    def measure() -> float:
        total, n = 0.0, 0
        for batch in batches.epoch(ordered, seed=0, epoch=0, subset=subset, evaluate=True):
            losses = scorer(batch).losses
            total, n = total + float(losses.double().sum()), n + len(losses)
        return total / n

    return measure
