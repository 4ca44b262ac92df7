"""A policy applied class by class."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch

from modyn_dagster.randomness import seed_for
from modyn_dagster.training.downsampling.pool import Chosen, Policy, Pool

Int64 = npt.NDArray[np.int64]
Balance = Literal["none", "proportional", "equal"]


@dataclass(frozen=True)
class ByClass:
    """Runs a policy inside every class; weights of an estimator stay unbiased, for a sum over the pool is one over classes.

    Args:
        policy: for each class.
        balance: share of a class: as in the pool, or as large as any other's.
        asked: the user asked for it; otherwise a budget that does not reach every class is spent on the pool as a whole.
        sized: the policy chooses as many as it is told; otherwise it is told the size of the class.
    """

    policy: Policy
    balance: Balance
    asked: bool = True
    sized: bool = True

    def __post_init__(self) -> None:
        if self.balance not in get_args(Balance):
            raise ValueError(f"balance must be one of {', '.join(get_args(Balance))}, not {self.balance!r}")

    @property
    def needs(self) -> frozenset[str]:
        """The policy's."""
        return self.policy.needs

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Class after class."""
        if not self.asked and pool.labels is None:
            return self.policy(pool, k, seed)
        labels, open_ = pool.need("labels").cpu().numpy(), np.ones(pool.n, dtype=bool)
        if pool.selected is not None:
            open_[pool.selected.numpy()] = False
        # Members already take no place of their class.
        classes, sizes = np.unique(labels[open_], return_counts=True)
        if self.sized and k < len(classes):
            if not self.asked:
                return self.policy(pool, k, seed)
            raise ValueError(f"{pool.asked_by}: balance needs a sample per class: k is {k}, there are {len(classes)} classes")
        quotas = self._quotas(sizes, k) if self.sized else sizes
        parts = []
        for label, quota in zip(classes.tolist(), quotas.tolist()):
            members = torch.from_numpy(np.flatnonzero(labels == label))
            found = self.policy(pool.at(members), quota, seed_for(seed, "class", label))
            parts.append(Chosen(members[found.indices.cpu()], found.weights, found.estimates))
        indices = torch.cat([part.indices for part in parts])
        return Chosen(indices, torch.cat([part.weights for part in parts]), all(part.estimates for part in parts))

    def _quotas(self, sizes: Int64, k: int) -> Int64:
        return equal_quotas(sizes, k) if self.balance == "equal" else proportional_quotas(sizes, k)


def equal_quotas(sizes: Int64, k: int) -> Int64:
    """As equal as the sizes allow; what small classes leave is shared by the others, odd ones by the first.

    >>> equal_quotas(np.array([100, 2, 100]), 11)
    array([5, 2, 4])
    """
    quotas = np.zeros_like(sizes)
    while (rest := k - int(quotas.sum())) > 0:
        open_ = np.flatnonzero(quotas < sizes)
        each, odd = divmod(rest, len(open_))
        offered = each + (np.arange(len(open_)) < odd)
        quotas[open_] += np.minimum(offered, (sizes - quotas)[open_])
    return quotas


def proportional_quotas(sizes: Int64, k: int) -> Int64:
    """By largest remainders, but at least 1 each.

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
