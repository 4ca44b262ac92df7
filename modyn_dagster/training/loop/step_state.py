"""State of the steps of a training, for checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor
from torch.optim import Optimizer

from modyn_dagster.training.loop.final_weights import MovingAverage
from modyn_dagster.training.loop.schedulers import Scheduler
from modyn_dagster.training.models.network import Network, SampleLoss
from modyn_dagster.training.team.sharding import Sharding, part_of

Tree = TypeVar("Tree")


@dataclass(frozen=True, slots=True)
class StepState:
    """Parts of a training that have a state.

    Attributes:
        network: network with its weights.
        optimizers: optimizers of its body.
        schedulers: schedulers of the optimizers; may grow later.
        precision: precision plugin of Lightning Fabric, with the scaler of half precision.
        average: moving average of the weights; None without.
        loss: loss, whose ``state_dict`` counts if it has one.
        sharding: division of the weights among ranks; None where this process holds all.
    """

    network: Network
    optimizers: Sequence[Optimizer]
    schedulers: Sequence[Scheduler]
    precision: Any
    average: MovingAverage | None
    loss: SampleLoss
    sharding: Sharding | None = None

    def whole(self, tree: Tree, *, kept: bool = True) -> Tree:
        """Make divided tensors in a state whole, on all ranks; None takes their place where they are not ``kept``."""
        return tree if self.sharding is None else self.sharding.whole(tree, kept=kept)

    def load_optimizer(self, optimizer: Optimizer, saved: dict[str, Any]) -> None:
        """Continue an optimizer from its whole state."""
        optimizer.load_state_dict(saved) if self.sharding is None else self.sharding.load_optimizer(optimizer, saved)

    def optimizer_states(self) -> list[dict[str, Any]]:
        """Return the state of every optimizer."""
        return [optimizer.state_dict() for optimizer in self.optimizers]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all parts."""
        return {
            "network": dict(self.network.state_dict()),
            "buffers": self._transient_buffers(),
            "optimizers": self.optimizer_states(),
            "scaler": self.precision.state_dict(),
        } | {name: part.state_dict() for name, part in self._stateful().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        own = self.network.state_dict()
        self.network.load_state_dict({name: part_of(tensor, own[name]) for name, tensor in state["network"].items()})
        for name, buffer in self._transient_buffers().items():
            buffer.copy_(state["buffers"][name])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            self.load_optimizer(optimizer, saved)
        self.precision.load_state_dict(state["scaler"])
        for name, part in self._stateful().items():
            part.load_state_dict(state[name])

    def _stateful(self) -> dict[str, Any]:
        parts: dict[str, Any] = {f"scheduler {i}": scheduler for i, scheduler in enumerate(self.schedulers)}
        if self.average is not None:
            parts["average"] = self.average
        return parts | ({"loss": self.loss} if hasattr(self.loss, "state_dict") else {})

    def _transient_buffers(self) -> dict[str, Tensor]:
        """Buffers that are not part of a stored model."""
        stored = self.network.state_dict()
        return {name: buffer for name, buffer in self.network.named_buffers() if name not in stored}
