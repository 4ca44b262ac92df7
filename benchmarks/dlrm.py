"""DLRM, the benchmark's recommendation model, sized for a million rows within seconds on two CPU cores."""

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor, nn

from benchmarks.criteo import SIZES
from benchmarks.rows import N_NUMERIC
from modyn_dagster.training.models.dlrm import DLRM

#: Rows of an embedding table at most; larger categories share rows, as is usual.
MAX_ROWS: Final = 20_000


class Trainer:
    """One model and its optimizers; ``step`` trains on a batch. Embeddings have a sparse optimizer of their own."""

    def __init__(self, device: str, *, seed: int = 0) -> None:
        torch.manual_seed(seed)
        rows = [min(int(size), MAX_ROWS) for size in SIZES]
        self.model = DLRM(N_NUMERIC, rows, embedding=8, bottom=(32,), top=(32,), n_outputs=1, sparse=True).to(device)
        dense = [parameter for name, parameter in self.model.named_parameters() if not name.startswith("embedding")]
        self._optimizers: list[torch.optim.Optimizer] = [
            torch.optim.SGD(dense, lr=0.1),
            torch.optim.SGD(self.model.embedding.parameters(), lr=20.0),
        ]

    def step(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Train on one batch; returns its mean loss, on the device."""
        loss = nn.functional.binary_cross_entropy_with_logits(self.model(batch["num"], batch["cat"])[:, 0], batch["label"])
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
        for optimizer in self._optimizers:
            optimizer.step()
        return loss.detach()
