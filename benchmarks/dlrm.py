"""DLRM, the benchmark's recommendation model: embeddings, a bottom and a top network, dot products between features.

Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems", arXiv:1906.00091. Sized so
that two CPU cores train on a million rows within seconds at batches of 65,536.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor, nn

from benchmarks.criteo import SIZES
from benchmarks.rows import N_NUMERIC

#: Rows of an embedding table at most; larger categories share rows, as is usual.
MAX_ROWS: Final = 20_000


class Dlrm(nn.Module):
    """Logit of a click, ``float32[B]``, from a batch with ``num float32[B, 13]`` and ``cat int64[B, 26]``."""

    rows: Tensor
    starts: Tensor
    lower: Tensor

    def __init__(self, width: int = 8, bottom: Sequence[int] = (32,), top: Sequence[int] = (32,)) -> None:
        super().__init__()
        rows = [min(int(size), MAX_ROWS) for size in SIZES]
        # One table for all columns: 26 look-ups become one.
        self.embedding = nn.Embedding(sum(rows), width, sparse=True)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.register_buffer("rows", torch.tensor(rows))
        self.register_buffer("starts", torch.tensor([0, *rows[:-1]]).cumsum(0))
        self.bottom = _mlp(N_NUMERIC, [*bottom, width], last=True)
        features = len(rows) + 1
        lower = torch.tril_indices(features, features, offset=-1)
        self.register_buffer("lower", lower[0] * features + lower[1])
        self.top = _mlp(width + lower.shape[1], [*top, 1], last=False)

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        numeric = self.bottom(batch["num"])
        embedded = self.embedding(batch["cat"] % self.rows + self.starts)
        features = torch.cat([numeric.unsqueeze(1), embedded], dim=1)
        products = torch.bmm(features, features.transpose(1, 2)).flatten(1)
        logits: Tensor = self.top(torch.cat([numeric, products.index_select(1, self.lower)], dim=1))
        return logits.squeeze(1)


class Trainer:
    """One model and its optimizers; ``step`` trains on a batch. Embeddings have a sparse optimizer of their own."""

    def __init__(self, device: str, *, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = Dlrm().to(device)
        dense = [parameter for name, parameter in self.model.named_parameters() if not name.startswith("embedding")]
        self._optimizers: list[torch.optim.Optimizer] = [
            torch.optim.SGD(dense, lr=0.1),
            torch.optim.SGD(self.model.embedding.parameters(), lr=20.0),
        ]

    def step(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Train on one batch; returns its mean loss, on the device."""
        loss = nn.functional.binary_cross_entropy_with_logits(self.model(batch), batch["label"])
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in self._optimizers:
            optimizer.step()
        return loss.detach()


def _mlp(n: int, widths: Sequence[int], *, last: bool) -> nn.Sequential:
    """Linear layers with ReLU between them, and after the last one if asked."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Linear(n, width), nn.ReLU()]
        n = width
    return nn.Sequential(*(layers if last else layers[:-1]))
