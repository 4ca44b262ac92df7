"""When importance sampling starts, found out from the batches that are trained on anyway."""

from typing import Any, Final

from torch import Tensor

from modyn_dagster.training.downsampling.importance import gain_needed, variance_gain

#: Weight of the past in the moving average of tau, which starts at 0 (Katharopoulos and Fleuret 2018, algorithm 1).
SMOOTHING: Final = 0.9


class ImportanceStart:
    """A moving average of tau over batches; before it is large enough nobody pays for a second forward pass.

    >>> start = ImportanceStart()
    >>> start.reached(640, 128)
    False
    """

    def __init__(self) -> None:
        self._tau = 0.0

    def observe(self, scores: Tensor) -> None:
        """The norms of a batch, ``float[b]``."""
        self._tau = SMOOTHING * self._tau + (1 - SMOOTHING) * variance_gain(scores)

    def reached(self, n: int, k: int) -> bool:
        """Whether choosing ``k`` of ``n`` by importance pays now."""
        return self._tau > gain_needed(n, k)

    def state_dict(self) -> dict[str, Any]:
        """All it remembers."""
        return {"tau": self._tau}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another one was."""
        self._tau = float(state["tau"])
