"""Importance sampling by loss, or by an upper bound of the gradient norm once that pays off.

Source: Katharopoulos and Fleuret, Not All Samples Are Created Equal, ICML 2018.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal

import torch
from torch import Tensor

from modyn_dagster.training.downsampling.draws import probabilities, require_numbers, with_replacement, without_replacement
from modyn_dagster.training.downsampling.pool import Chosen, Pool


@dataclass(frozen=True)
class Loss:
    """Draws with probability ``q`` proportional to the loss.

    Weights are ``1 / (k q)`` with replacement, ``1 / pi`` without: the weighted sum of any values is unbiased either way.

    Args:
        replacement: draw with replacement.
        floor: lower bound ``floor / n`` of the probabilities, so that weights stay bounded.

    >>> from modyn_dagster.training.downsampling import select
    >>> indices, weights = select("loss", losses=[0.1, 0.1, 3.0, 0.8], k=2, replacement=False, seed=0)
    >>> indices.tolist(), weights.tolist()
    ([2, 3], [1.0, 1.25])

    Source: Katharopoulos and Fleuret, Not All Samples Are Created Equal, ICML 2018, the baseline of section 4.
    """

    replacement: bool = True
    floor: float = 1e-3

    needs: ClassVar[frozenset[str]] = frozenset({"losses"})

    def __post_init__(self) -> None:
        if not 0 < self.floor <= 1:
            raise ValueError(f"floor must be above 0 and at most 1, not {self.floor}")

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Draw the samples."""
        return self.draw(pool.sample_losses(), pool, k, seed)

    def draw(self, scores: Tensor, pool: Pool, k: int, seed: int) -> Chosen:
        """Draw in proportion to scores ``float[n]``."""
        q = probabilities(scores.detach().to("cpu", torch.float64).numpy(), floor=self.floor, asked_by=pool.asked_by)
        draw = with_replacement if self.replacement else without_replacement
        indices, weights = draw(q, k, pool.rng(seed))
        return Chosen(torch.from_numpy(indices), torch.from_numpy(weights), estimates=True)


@dataclass(frozen=True)
class DLIS(Loss):
    """Draws with probability proportional to the norm of the gradient at the last layer's outputs.

    With the cross-entropy this is the norm of ``p - y``. Other losses need ``gradients``.

    Args:
        replacement: draw with replacement.
        floor: lower bound ``floor / n`` of the probabilities.
        start: ``auto`` draws uniformly with weight 1 until importance sampling pays off (section 3.3); ``always`` starts at
            once.

    >>> from modyn_dagster.training.downsampling import select
    >>> logits = [[2.0, -2.0], [-1.0, 1.0], [0.1, 0.0]]
    >>> indices, weights = select("dlis", logits=logits, labels=[0, 0, 0], k=2, start="always", seed=0)
    >>> indices.tolist(), weights.numpy().round(2).tolist()
    ([1, 2], [0.78, 1.45])

    Source: Katharopoulos and Fleuret, Not All Samples Are Created Equal, ICML 2018, section 3.2.
    """

    start: Literal["auto", "always"] = "auto"

    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start not in ("auto", "always"):
            raise ValueError(f"start must be auto or always, not {self.start!r}")

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Draw the samples."""
        scores = self.scores(pool)
        # A diverged model has gradients of NaN, whose variance gain would read as "importance sampling does not help".
        require_numbers(scores.detach().to("cpu", torch.float64).numpy(), pool.asked_by, finite=True)
        if self.start == "auto" and variance_gain(scores) <= gain_needed(pool.n, k):
            return self.uniform(pool, k, seed)
        return self.draw(scores, pool, k, seed)

    def scores(self, pool: Pool) -> Tensor:
        """Norms of the gradients at the outputs, ``float[n]``."""
        if pool.gradients is not None and (pool.logits is None or pool.labels is None):
            return pool.gradients.square().sum(1).sqrt()
        return pool.last_layer().square().sum(1).sqrt()

    def uniform(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Draw uniformly with weight 1, as before the start of importance sampling."""
        return Chosen.plain(torch.from_numpy(pool.rng(seed).choice(pool.n, k, replace=False)))

    def after_start(self) -> "DLIS":
        """Return this policy with importance sampling started."""
        return replace(self, start="always")


def variance_gain(scores: Tensor) -> float:
    """Gain ``tau = sqrt(n * sum q^2)``, 1 for equal scores: size of a uniform batch of the same variance, relative (eq. 26).

    >>> variance_gain(torch.tensor([1.0, 1.0])), round(variance_gain(torch.tensor([1.0, 0.0])), 3)
    (1.0, 1.414)
    """
    scores = scores.detach().double()
    total = float(scores.sum())
    return math.sqrt(len(scores) * float((scores / total).square().sum())) if total > 0 else 1.0


def gain_needed(n: int, k: int) -> float:
    """Least gain that pays off, ``(n + 3k) / 3k``: a backward pass costs twice a forward pass (section 3.3)."""
    return (n + 3 * k) / (3 * k)


#: Weight of the past in the moving average of tau, which starts at 0 (Katharopoulos and Fleuret 2018, algorithm 1).
SMOOTHING: Final = 0.9


class ImportanceStart:
    """Moving average of tau over batches. Batches need no second forward pass until it is large enough.

    >>> start = ImportanceStart()
    >>> start.reached(640, 128)
    False
    """

    def __init__(self) -> None:
        self._tau = 0.0

    def observe(self, scores: Tensor) -> None:
        """Add the gradient norms of a batch, ``float[b]``."""
        self._tau = SMOOTHING * self._tau + (1 - SMOOTHING) * variance_gain(scores)

    def reached(self, n: int, k: int) -> bool:
        """Tell if choosing ``k`` of ``n`` by importance pays off."""
        return self._tau > gain_needed(n, k)

    def state_dict(self) -> dict[str, Any]:
        """Return the moving average."""
        return {"tau": self._tau}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self._tau = float(state["tau"])
