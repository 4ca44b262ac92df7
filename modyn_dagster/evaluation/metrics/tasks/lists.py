"""Metrics of rankings: values of lists, the samples that have a group in common, and their mean.

A sample is relevant where its relevance is above 0. A list without a relevant sample has no value, and is left out of means.
Equal scores are ties: each value is the expectation over all orders of the tied samples, so it depends on no order of the rows.

Source: F. McSherry and M. Najork, Computing Information Retrieval Performance Measures Efficiently in the Presence of Tied
Scores, 2008; for gain and discount C. Burges et al., Learning to Rank using Gradient Descent, 2005.
"""

from collections.abc import Callable
from functools import cached_property

import numpy as np

from modyn_dagster.evaluation.metrics.evaluation_samples import (
    CellFailed,
    EvaluationSamples,
    Int64,
    Outputs,
    Truth,
    UndefinedScore,
)
from modyn_dagster.evaluation.metrics.groups import Groups, quotients
from modyn_dagster.evaluation.metrics.losses import Float64
from modyn_dagster.spec.tasks.task import GROUP, RELEVANCE


def ndcg(outputs: Outputs, truth: Truth, cutoff: int | None = None) -> Float64:
    """Normalised discounted cumulative gain of every list: the sum of ``(2^relevance - 1) / log2(rank + 1)``, over the largest.

    Args:
        outputs: scores ``float32[n, 1]``.
        truth: relevance and group, ``float64[n, 2]``.
        cutoff: ranks that count (``ndcg_10``); all by default.

    >>> ndcg(np.float32([[2], [1], [5]]), np.array([[0.0, 7], [1.0, 7], [1.0, 8]])).round(3)
    array([0.631, 1.   ])
    """
    ranked = _Ranked(outputs, truth)
    counted = ranked.rank <= (len(truth) if cutoff is None else cutoff)
    discounts = np.where(counted, 1 / np.log2(ranked.rank + 1), 0.0)
    in_blocks = ranked.by_block(np.exp2(ranked.relevance) - 1) / ranked.block_sizes * ranked.by_block(discounts)
    best = np.lexsort((-truth[:, RELEVANCE], truth[:, GROUP]))
    ideal = ranked.by_list((np.exp2(truth[best, RELEVANCE]) - 1) * discounts)
    return quotients(np.add.reduceat(in_blocks, ranked.block_of[ranked.list_starts]), ideal, of_none=np.nan)


def reciprocal_rank(outputs: Outputs, truth: Truth) -> Float64:
    """One over the rank of the first relevant sample of every list.

    Args:
        outputs: scores ``float32[n, 1]``.
        truth: relevance and group, ``float64[n, 2]``.

    >>> reciprocal_rank(np.float32([[2], [1], [5]]), np.array([[0.0, 7], [1.0, 7], [1.0, 8]]))
    array([0.5, 1. ])
    """
    ranked = _Ranked(outputs, truth)
    relevant = ranked.by_block(ranked.relevant)
    blocks = np.flatnonzero(relevant)
    lists, first = np.unique(ranked.list_of[ranked.block_starts[blocks]], return_index=True)
    values = np.full(len(ranked.list_starts), np.nan)
    for place, block in zip(lists.tolist(), blocks[first].tolist(), strict=True):
        rank = int(ranked.rank[ranked.block_starts[block]])
        values[place] = _expected_reciprocal(rank, int(ranked.block_sizes[block]), int(relevant[block]))
    return values


def average_precision(outputs: Outputs, truth: Truth) -> Float64:
    """Mean of the precisions at the ranks of a list's relevant samples, of every list.

    Args:
        outputs: scores ``float32[n, 1]``.
        truth: relevance and group, ``float64[n, 2]``.

    >>> average_precision(np.float32([[2], [1], [0]]), np.array([[1.0, 7], [0.0, 7], [1.0, 7]])).round(3)
    array([0.833])
    """
    ranked = _Ranked(outputs, truth)
    in_block, before = ranked.by_block(ranked.relevant), np.cumsum(ranked.relevant) - ranked.relevant
    earlier = before[ranked.block_starts][ranked.block_of] - before[ranked.list_starts][ranked.list_of]
    relevant, size = in_block[ranked.block_of], ranked.block_sizes[ranked.block_of]
    place = ranked.rank - ranked.rank[ranked.block_starts][ranked.block_of]
    # At each place of a tie: the chance of a relevant sample, and the relevant ones down to it if there is one.
    down_to = earlier + 1 + place * (relevant - 1) / np.maximum(size - 1, 1)
    return quotients(ranked.by_list(relevant / size * down_to / ranked.rank), ranked.by_list(ranked.relevant), of_none=np.nan)


def mean_over_lists(of_lists: Callable[..., Float64], groups: Groups, cutoff: int | None = None) -> Float64:
    """Mean of a metric over the lists of every slice that have a relevant sample; NaN where there is none."""
    parameters = {} if cutoff is None else {"cutoff": cutoff}

    def mean(outputs: Outputs, truth: Truth) -> float:
        values = of_lists(outputs, truth, **parameters)
        defined = values[np.isfinite(values)]
        return float(defined.mean()) if len(defined) else np.nan

    return groups.apart(mean)


def check_relevant(samples: EvaluationSamples, part: slice, cutoff: int | None = None) -> None:  # noqa: ARG001 - of the kernel
    """Raise ``UndefinedScore`` where no sample is relevant, ``CellFailed`` for a truth without groups."""
    if samples.truth.ndim == 1:
        raise CellFailed("the truth is one value per sample; relevance and group are needed")
    if not (samples.truth[part, RELEVANCE] > 0).any():
        raise UndefinedScore("no group has a relevant sample")


class _Ranked:
    """Samples in the order of group and descending score. A block holds the samples of a list with one score.

    Attributes:
        relevance: relevance in this order.
        relevant: 1.0 where it is above 0.
        list_starts: place of the first sample of every list.
        list_of: list of each sample.
        rank: rank in its list, from 1, ties in the order of the rows.
        block_starts: place of the first sample of every block.
        block_of: block of each sample.
    """

    def __init__(self, outputs: Outputs, truth: Truth) -> None:
        scores, groups = outputs[:, 0], truth[:, GROUP]
        order = np.lexsort((-scores, groups))
        self.relevance = truth[order, RELEVANCE]
        self.relevant = (self.relevance > 0).astype(np.float64)
        begins_list, begins_block = np.ones((2, len(order)), np.bool_)
        begins_list[1:] = np.diff(groups[order]) != 0
        begins_block[1:] = begins_list[1:] | (scores[order][1:] != scores[order][:-1])
        self.list_starts, self.block_starts = np.flatnonzero(begins_list), np.flatnonzero(begins_block)
        self.list_of, self.block_of = np.cumsum(begins_list) - 1, np.cumsum(begins_block) - 1
        self.rank = np.arange(len(order)) - self.list_starts[self.list_of] + 1

    @cached_property
    def block_sizes(self) -> Int64:
        """Samples of every block."""
        return np.diff(self.block_starts, append=len(self.rank))

    def by_block(self, values: Float64) -> Float64:
        """Sum of the values of every block."""
        return np.add.reduceat(values, self.block_starts)

    def by_list(self, values: Float64) -> Float64:
        """Sum of the values of every list."""
        return np.add.reduceat(values, self.list_starts)


def _expected_reciprocal(rank: int, size: int, relevant: int) -> float:
    """Expected reciprocal rank of the first of ``relevant`` among ``size`` tied samples, of which the first has ``rank``."""
    places = np.arange(size - relevant + 1)
    found = relevant / (size - places)
    missed = np.cumprod(np.append(1.0, 1 - found[:-1]))
    return float((missed * found / (rank + places)).sum())
