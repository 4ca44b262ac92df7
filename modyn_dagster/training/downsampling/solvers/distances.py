"""Features as they are compared, and how far apart they are."""

from typing import Final, Literal

import numpy as np
import torch
from torch import Tensor

Metric = Literal["euclidean", "cosine", "rbf", "dot"]

#: Samples up to which distances are computed in float64: cheap there, and small pools are where rounding decides.
EXACT: Final = 2048


def prepared(features: Tensor, metric: Metric = "euclidean") -> tuple[Tensor, Tensor]:
    """Features as they are compared, ``float[n, d]``, and their squared norms.

    Distances do not change when all are moved, nor their order when all are scaled: the mean goes, against cancellation, and
    the largest magnitude becomes about 1 by a power of two, which loses nothing.
    """
    found = features.detach().double() if len(features) <= EXACT else features.detach()
    if not torch.isfinite(found).all():
        raise ValueError("embeddings or gradients hold NaN or infinity")
    if metric == "cosine":
        norms = found.norm(dim=1, keepdim=True)
        found = found / torch.where(norms > 0, norms, 1)
    if metric in ("euclidean", "rbf"):
        found = found - found.mean(0)
    if metric == "euclidean":
        found = rescaled(found)
    return found, found.square().sum(1)


def rescaled(found: Tensor) -> Tensor:
    """Times a power of two, so that the largest magnitude is between 1/2 and 1; zeros stay."""
    largest = float(found.abs().max()) if found.numel() else 0.0
    return found if largest == 0 else torch.ldexp(found, torch.tensor(-int(np.frexp(largest)[1]), device=found.device))


def distances(features: Tensor, squares: Tensor, members: Tensor) -> Tensor:
    """Euclidean ones from ``members`` to all: ``float[m, n]``; exactly 0 to itself."""
    found = torch.addmm(squares, features[members], features.T, alpha=-2)
    found = found.add_(squares[members][:, None]).clamp_(min=0).sqrt_()
    found[torch.arange(len(members)), members] = 0
    return found
