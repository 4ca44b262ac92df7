"""A policy applied class by class."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch

from modyn_dagster.reproducibility.randomness import seed_for
from modyn_dagster.training.downsampling.pool import Chosen, Policy, Pool

Int64 = npt.NDArray[np.int64]
Balance = Literal["none", "proportional", "equal"]


@dataclass(frozen=True)
class ByClass:
    """Choice within every class. Weights of an estimator stay unbiased: a sum over the pool is a sum over classes.

    Args:
        policy: policy of each class.
        balance: shares of classes: as in the pool, or equal.
        required: fail for a budget smaller than the number of classes; otherwise the policy chooses from the whole pool then.
        fixed_size: the policy chooses exactly ``k`` samples; otherwise ``k`` is the size of the class.
    """

    policy: Policy
    balance: Balance
    required: bool = True
    fixed_size: bool = True

    def __post_init__(self) -> None:
        if self.balance not in get_args(Balance):
            raise ValueError(f"balance must be one of {', '.join(get_args(Balance))}, not {self.balance!r}")

    @property
    def needs(self) -> frozenset[str]:
        """Inputs of the policy."""
        return self.policy.needs

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Choose within class after class."""
        if not self.required and pool.labels is None:
            return self.policy(pool, k, seed)
        labels, available = pool.need("labels").cpu().numpy(), np.ones(pool.n, dtype=bool)
        if pool.selected is not None:
            available[pool.selected.numpy()] = False
        # Selected samples do not count towards the quota of their class.
        classes, sizes = np.unique(labels[available], return_counts=True)
        if self.fixed_size and k < len(classes):
            if not self.required:
                return self.policy(pool, k, seed)
            raise ValueError(f"{pool.asked_by}: balance needs a sample per class: k is {k}, there are {len(classes)} classes")
        quotas = self._quotas(sizes, k) if self.fixed_size else sizes
        parts = []
        for label, quota in zip(classes.tolist(), quotas.tolist()):
            members = torch.from_numpy(np.flatnonzero(labels == label))
            chosen = self.policy(pool.at(members), quota, seed_for(seed, "class", label))
            parts.append(Chosen(members[chosen.indices.cpu()], chosen.weights, chosen.estimates))
        indices = torch.cat([part.indices for part in parts])
        return Chosen(indices, torch.cat([part.weights for part in parts]), all(part.estimates for part in parts))

    def _quotas(self, sizes: Int64, k: int) -> Int64:
        return equal_quotas(sizes, k) if self.balance == "equal" else proportional_quotas(sizes, k)


def equal_quotas(sizes: Int64, k: int) -> Int64:
    """Quotas as equal as the sizes allow. Larger classes share the rest of small ones, the first ones take remainders.

    >>> equal_quotas(np.array([100, 2, 100]), 11)
    array([5, 2, 4])
    """
    quotas = np.zeros_like(sizes)
    while (rest := k - int(quotas.sum())) > 0:
        available = np.flatnonzero(quotas < sizes)
        share, remainder = divmod(rest, len(available))
        offered = share + (np.arange(len(available)) < remainder)
        quotas[available] += np.minimum(offered, (sizes - quotas)[available])
    return quotas


def proportional_quotas(sizes: Int64, k: int) -> Int64:
    """Quotas by largest remainders, at least 1 each.

    >>> proportional_quotas(np.array([60, 30, 1]), 9)
    array([5, 3, 1])
    """
    exact = sizes * (k / sizes.sum())
    quotas: Int64 = np.maximum(1, np.floor(exact)).astype(np.int64)
    while (rest := k - int(quotas.sum())) != 0:
        room = quotas < sizes if rest > 0 else quotas > 1
        urgency = np.where(room, (exact - quotas) * np.sign(rest), -np.inf)
        quotas[int(np.argmax(urgency))] += np.sign(rest)
    return quotas
