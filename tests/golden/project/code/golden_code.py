"""Code of the golden project, named by import paths; it imports nothing of the platform, so its digests stay."""

from typing import Any

import numpy as np
import sqlalchemy as sa
import torch


def late_hours(sample: Any) -> sa.ColumnElement[float]:
    """Three times as likely in the afternoon."""
    return sa.case((sa.extract("hour", sample.time) >= 12, 3.0), else_=1.0)


def share_of_ones(outputs: Any, truth: Any) -> float:
    """The share of samples called class 1."""
    return float(np.mean(np.argmax(outputs, axis=1) == 1))


def jitter(features: torch.Tensor, *, scale: float, rng: np.random.Generator) -> torch.Tensor:
    """Move a sample a little."""
    return features + scale * torch.from_numpy(rng.random(features.shape)).to(features.dtype)


def first_or_two(votes: dict[str, bool], first: str) -> bool:
    """One member decides alone, any other two together."""
    return votes[first] or sum(votes.values()) >= 2
