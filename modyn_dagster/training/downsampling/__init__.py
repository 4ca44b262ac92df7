"""Downsampling: policies that choose samples of a batch or of the training set, on plain tensors.

>>> import torch
>>> indices, weights = select("least_confidence", logits=torch.tensor([[9.0, 0.0], [0.1, 0.0], [3.0, 0.0]]), k=2, seed=0)
>>> indices.tolist(), weights.tolist()
([1, 2], [1.0, 1.0])
"""

from modyn_dagster.training.downsampling.pool import Chosen, Policy, Pool
from modyn_dagster.training.downsampling.registry import POLICIES, build_policy
from modyn_dagster.training.downsampling.select import select

__all__ = ["POLICIES", "Chosen", "Policy", "Pool", "build_policy", "select"]
