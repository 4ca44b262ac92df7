"""State that the steps of a training leave for later ones, as checkpoints hold it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from modyn_dagster.training.loop.final_weights import MovingAverage
from modyn_dagster.training.loop.schedulers import Scheduler
from modyn_dagster.training.models.network import Network, SampleLoss


@dataclass(frozen=True, slots=True)
class StepState:
    """The parts that move, of one training.

    Attributes:
        network: with its weights.
        optimizers, schedulers: of its body; schedulers may be added later.
        precision: of Lightning Fabric, with the scaler of half precision.
        average: of the weights, if there is one.
        loss: which has a state where it says so.
    """

    network: Network
    optimizers: Sequence[Optimizer]
    schedulers: Sequence[Scheduler]
    precision: Any
    average: MovingAverage | None
    loss: SampleLoss

    def optimizer_states(self) -> list[dict[str, Any]]:
        """One per optimizer."""
        return [optimizer.state_dict() for optimizer in self.optimizers]

    def state_dict(self) -> dict[str, Any]:
        """All of it."""
        return {
            "network": dict(self.network.state_dict()),
            "buffers": self._passing_buffers(),
            "optimizers": self.optimizer_states(),
            "scaler": self.precision.state_dict(),
        } | {name: part.state_dict() for name, part in self._stateful().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another training was."""
        self.network.load_state_dict(state["network"])
        for name, buffer in self._passing_buffers().items():
            buffer.copy_(state["buffers"][name])
        for optimizer, was in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(was)
        self.precision.load_state_dict(state["scaler"])
        for name, part in self._stateful().items():
            part.load_state_dict(state[name])

    def _stateful(self) -> dict[str, Any]:
        parts: dict[str, Any] = {f"scheduler {i}": scheduler for i, scheduler in enumerate(self.schedulers)}
        if self.average is not None:
            parts["average"] = self.average
        return parts | ({"loss": self.loss} if hasattr(self.loss, "state_dict") else {})

    def _passing_buffers(self) -> dict[str, Tensor]:
        """Buffers that are not part of a stored model."""
        kept = self.network.state_dict()
        return {name: buffer for name, buffer in self.network.named_buffers() if name not in kept}
