"""Features prepared for comparison, and their distances."""

from typing import Final, Literal

import numpy as np
import torch
from torch import Tensor

Metric = Literal["euclidean", "cosine", "rbf", "dot"]

#: Largest pool whose distances are computed in float64: there it is cheap, and rounding decides most choices.
EXACT: Final = 2048


def prepared(features: Tensor, metric: Metric = "euclidean") -> tuple[Tensor, Tensor]:
    """Prepare features for comparison: ``float[n, d]`` and their squared norms.

    Subtracting the mean keeps distances and avoids cancellation. Scaling by a power of two is exact and keeps their order.
    """
    rows = features.detach().double() if len(features) <= EXACT else features.detach()
    if not torch.isfinite(rows).all():
        raise ValueError("embeddings or gradients hold NaN or infinity")
    if metric == "cosine":
        norms = rows.norm(dim=1, keepdim=True)
        rows = rows / torch.where(norms > 0, norms, 1)
    if metric in ("euclidean", "rbf"):
        rows = rows - rows.mean(0)
    if metric == "euclidean":
        rows = rescaled(rows)
    return rows, rows.square().sum(1)


def rescaled(rows: Tensor) -> Tensor:
    """Multiply by a power of two that brings the largest magnitude between 1/2 and 1; zeros stay."""
    largest = float(rows.abs().max()) if rows.numel() else 0.0
    return rows if largest == 0 else torch.ldexp(rows, torch.tensor(-int(np.frexp(largest)[1]), device=rows.device))


def distances(features: Tensor, squares: Tensor, members: Tensor) -> Tensor:
    """Compute Euclidean distances from ``members`` to all samples: ``float[m, n]``, exactly 0 to itself."""
    block = torch.addmm(squares, features[members], features.T, alpha=-2)
    block = block.add_(squares[members][:, None]).clamp_(min=0).sqrt_()
    block[torch.arange(len(members)), members] = 0
    return block
