"""Importance sampling by loss, or by a bound of the gradient norm once that pays off (Katharopoulos & Fleuret, ICML 2018)."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal

import torch
from torch import Tensor

from modyn_dagster.training.downsampling.draws import probabilities, require_numbers, with_replacement, without_replacement
from modyn_dagster.training.downsampling.pool import Chosen, Pool


@dataclass(frozen=True)
class Loss:
    """Draw with probability ``q`` proportional to the loss (Katharopoulos and Fleuret 2018, the baseline of section 4).

    Weights are ``1 / (k q)`` with replacement, ``1 / pi`` without: the weighted sum of any values is unbiased either way.

    Args:
        replacement: draw with replacement.
        floor: no probability is below ``floor / n``, so that weights stay bounded.
    """

    replacement: bool = True
    floor: float = 1e-3

    needs: ClassVar[frozenset[str]] = frozenset({"losses"})

    def __post_init__(self) -> None:
        if not 0 < self.floor <= 1:
            raise ValueError(f"floor must be above 0 and at most 1, not {self.floor}")

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Draw."""
        return self.draw(pool.sample_losses(), pool, k, seed)

    def draw(self, scores: Tensor, pool: Pool, k: int, seed: int) -> Chosen:
        """By scores ``float[n]``."""
        q = probabilities(scores.detach().to("cpu", torch.float64).numpy(), floor=self.floor, asked_by=pool.asked_by)
        draw = with_replacement if self.replacement else without_replacement
        indices, weights = draw(q, k, pool.rng(seed))
        return Chosen(torch.from_numpy(indices), torch.from_numpy(weights), estimates=True)


@dataclass(frozen=True)
class DLIS(Loss):
    """Draw with probability proportional to the norm of the gradient at the last layer's outputs (the same, section 3.2).

    With the cross-entropy that is the norm of ``p - y``; for other losses give ``gradients``.

    Args:
        replacement: draw with replacement.
        floor: no probability is below ``floor / n``.
        start: ``auto`` draws uniformly with weight 1 until importance sampling pays (section 3.3), ``always`` does not wait.
    """

    start: Literal["auto", "always"] = "auto"

    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start not in ("auto", "always"):
            raise ValueError(f"start must be auto or always, not {self.start!r}")

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Draw."""
        scores = self.scores(pool)
        # Without this a model that has lost itself would look like one that importance sampling does not help.
        require_numbers(scores.detach().to("cpu", torch.float64).numpy(), pool.asked_by, finite=True)
        if self.start == "auto" and variance_gain(scores) <= gain_needed(pool.n, k):
            return self.before(pool, k, seed)
        return self.draw(scores, pool, k, seed)

    def scores(self, pool: Pool) -> Tensor:
        """Norms, ``float[n]``."""
        if pool.gradients is not None and (pool.logits is None or pool.labels is None):
            return pool.gradients.square().sum(1).sqrt()
        return pool.last_layer().square().sum(1).sqrt()

    def before(self, pool: Pool, k: int, seed: int) -> Chosen:
        """A batch from before the start: uniform, with weight 1."""
        return Chosen.plain(torch.from_numpy(pool.rng(seed).choice(pool.n, k, replace=False)))

    def started(self) -> "DLIS":
        """The same, once it has started."""
        return replace(self, start="always")


def variance_gain(scores: Tensor) -> float:
    """``tau = sqrt(n * sum q^2)``: 1 for equal scores; how many times larger a uniform batch of the same variance is (eq. 26).

    >>> variance_gain(torch.tensor([1.0, 1.0])), round(variance_gain(torch.tensor([1.0, 0.0])), 3)
    (1.0, 1.414)
    """
    found = scores.detach().double()
    total = float(found.sum())
    return math.sqrt(len(found) * float((found / total).square().sum())) if total > 0 else 1.0


def gain_needed(n: int, k: int) -> float:
    """Importance sampling pays above ``(n + 3k) / 3k``, a backward pass costing twice a forward pass (section 3.3)."""
    return (n + 3 * k) / (3 * k)


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
        """True once choosing ``k`` of ``n`` by importance pays off."""
        return self._tau > gain_needed(n, k)

    def state_dict(self) -> dict[str, Any]:
        """All it remembers."""
        return {"tau": self._tau}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another one was."""
        self._tau = float(state["tau"])
