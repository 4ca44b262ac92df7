"""Numbers of samples epoch by epoch, found again by key."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from modyn_dagster.keys import KeyArray


class Positions:
    """Where in a training set a key stands; keys are different."""

    def __init__(self, keys: KeyArray) -> None:
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]

    def of(self, keys: Tensor) -> Tensor:
        """``int64[m]`` keys to ``int64[m]`` positions."""
        found = np.searchsorted(self._sorted, keys.cpu().numpy().view(np.uint64))
        return torch.from_numpy(self._order[found])


class History:
    """One number per sample and epoch, ``float64[epochs, n]``."""

    def __init__(self, n_epochs: int, n: int) -> None:
        self._rows = torch.zeros(n_epochs, n, dtype=torch.float64)

    def record(self, epoch: int, positions: Tensor, scores: Tensor) -> Tensor:
        """Write down the scores of this epoch; returns all epochs' up to it, ``float64[epoch + 1, m]``."""
        self._rows[epoch, positions] = scores.detach().to("cpu", torch.float64)
        return self._rows[: epoch + 1, positions]

    def state_dict(self) -> dict[str, Any]:
        """All numbers."""
        return {"rows": self._rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with another one's numbers."""
        self._rows = state["rows"]
