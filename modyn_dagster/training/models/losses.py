"""Losses of single samples, built in or from user code, and their weighted mean."""

from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from modyn_dagster.errors import WrongShape
from modyn_dagster.imports import made_by_factory
from modyn_dagster.spec.learning.models import CustomSpec
from modyn_dagster.spec.tasks.task import GROUP, RELEVANCE, TASKS, LossName, QuantilesTask, task_name
from modyn_dagster.spec.training import TaskKind, TrainingSpec
from modyn_dagster.training.models.network import SampleLoss


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


def _mse(outputs: Tensor, targets: Tensor) -> Tensor:
    if targets.dim() > 1:
        return functional.mse_loss(outputs, targets, reduction="none").mean(dim=1)
    return functional.mse_loss(outputs.squeeze(1), targets, reduction="none")


def _l1(outputs: Tensor, targets: Tensor) -> Tensor:
    if targets.dim() > 1:
        return functional.l1_loss(outputs, targets, reduction="none").mean(dim=1)
    return functional.l1_loss(outputs.squeeze(1), targets, reduction="none")


def _binary_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean(dim=1)


def ranked_probability(outputs: Tensor, targets: Tensor) -> Tensor:
    """Ranked probability score of classes with an order: mean squared difference of the cumulated probabilities from the truth.

    0 for a certain right answer, 1 for certainty of the one end where the truth is the other. It is a proper score, and the
    squared earth mover's distance between the predicted distribution and the true class.

    Args:
        outputs: logits ``[B, classes]``, at least two classes.
        targets: classes ``int64[B]``.

    Source: E. S. Epstein, A Scoring System for Probability Forecasts of Ranked Categories, 1969; as a loss of networks: L. Hou,
    C.-P. Yu and D. Samaras, Squared Earth Mover's Distance-based Loss for Training Deep Neural Networks, 2016.

    >>> ranked_probability(torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 9.0]]), torch.tensor([0, 0])).round(decimals=3)
    tensor([0., 1.])
    """
    below = torch.softmax(outputs, dim=1).cumsum(dim=1)[:, :-1]
    reached = torch.arange(outputs.shape[1] - 1, device=outputs.device) >= targets[:, None]
    return (below - reached.to(below.dtype)).square().mean(dim=1)


def pairwise_logistic(outputs: Tensor, targets: Tensor) -> Tensor:
    """RankNet: ``log(1 + exp(-d))`` of the difference of scores, more relevant less other, of the pairs of a group.

    The loss of a sample is the mean over its pairs with samples of its group and another relevance; 0 without one.

    Args:
        outputs: scores ``[B, 1]``.
        targets: relevance and group, ``float64[B, 2]``.

    Source: C. Burges et al., Learning to Rank using Gradient Descent, 2005.

    >>> pairwise_logistic(torch.zeros(3, 1), torch.tensor([[1.0, 7.0], [0.0, 7.0], [1.0, 8.0]])).round(decimals=3)
    tensor([0.6930, 0.6930, 0.0000])
    """
    scores, relevance, (first, second) = outputs.squeeze(1), targets[:, RELEVANCE], _pairs(targets[:, GROUP])
    differing = relevance[first] != relevance[second]
    first, second = first[differing], second[differing]
    signs = torch.sign(relevance[first] - relevance[second]).to(scores.dtype)
    losses = functional.softplus(signs * (scores[second] - scores[first]))
    counts = torch.bincount(first, minlength=len(scores)).clamp(min=1)
    return torch.zeros_like(scores).index_add(0, first, losses) / counts


def listwise_softmax(outputs: Tensor, targets: Tensor) -> Tensor:
    """ListNet, top one: cross-entropy between the softmax of relevances and that of scores, both within a group.

    The loss of a sample is its term, ``-p log q``; those of a group add up to its cross-entropy.

    Args:
        outputs: scores ``[B, 1]``.
        targets: relevance and group, ``float64[B, 2]``.

    Source: Z. Cao et al., Learning to Rank: From Pairwise Approach to Listwise Approach, 2007.

    >>> listwise_softmax(torch.zeros(3, 1), torch.tensor([[0.0, 7.0], [0.0, 7.0], [1.0, 8.0]])).round(decimals=3)
    tensor([0.3470, 0.3470, 0.0000])
    """
    scores, relevance = outputs.squeeze(1), targets[:, RELEVANCE]
    _, groups = torch.unique(targets[:, GROUP], return_inverse=True)
    wanted = torch.exp(relevance - _log_sum(relevance, groups))
    return wanted.to(scores.dtype) * (_log_sum(scores, groups) - scores)


def _pairs(groups: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs of samples of one group, of each with itself too, ``int64[P]`` both; P is the sum of the squared sizes of groups."""
    _, numbers, counts = torch.unique(groups, return_inverse=True, return_counts=True)
    members, sizes = torch.argsort(numbers, stable=True), counts[numbers]
    first = torch.repeat_interleave(sizes)
    places = torch.arange(len(first), device=groups.device) - (sizes.cumsum(0) - sizes)[first]
    return first, members[(counts.cumsum(0) - counts)[numbers[first]] + places]


def _log_sum(values: Tensor, groups: Tensor) -> Tensor:
    """Logarithm of the sum of ``exp(value)`` over the group of each sample, ``[B]``; groups are numbered from 0."""
    none = values.new_zeros(int(groups.max()) + 1)
    largest = none.scatter_reduce(0, groups, values.detach(), "amax", include_self=False)
    sums = none.index_add(0, groups, torch.exp(values - largest[groups]))
    return (largest + sums.log())[groups]


LOSSES: Final[Mapping[LossName, SampleLoss]] = {
    "cross_entropy": _cross_entropy,
    "mse": _mse,
    "l1": _l1,
    "ranked_probability": ranked_probability,
    "binary_cross_entropy": _binary_cross_entropy,
    "pairwise_logistic": pairwise_logistic,
    "listwise_softmax": listwise_softmax,
}


def pinball(levels: Sequence[float]) -> SampleLoss:
    """Mean pinball loss over quantiles: an error above costs ``level`` of its size, one below ``1 - level``.

    Args:
        levels: quantile of each output, between 0 and 1.

    Source: R. Koenker and G. Bassett, Regression Quantiles, 1978.

    >>> pinball([0.1, 0.9])(torch.tensor([[1.0, 3.0]]), torch.tensor([2.0]))
    tensor([0.1000])
    """

    def losses(outputs: Tensor, targets: Tensor) -> Tensor:
        errors, shares = targets[:, None].to(outputs.dtype) - outputs, outputs.new_tensor(levels)
        return torch.maximum(shares * errors, (shares - 1) * errors).mean(dim=1)

    return losses


def build_loss(spec: TrainingSpec, kind: TaskKind, *, source: str) -> SampleLoss:
    """The loss of a spec; a custom one is ``factory(**config)`` and must be callable."""
    if spec.loss is None or isinstance(spec.loss, str):
        if isinstance(spec.task, QuantilesTask):
            return pinball(spec.task.quantiles)
        return LOSSES[spec.loss or TASKS[task_name(spec.task, kind)].losses[0]]
    assert isinstance(spec.loss, CustomSpec)  # noqa: S101 - objectives are losses themselves
    what = "a callable (outputs, targets) -> losses"
    block, field = spec.loss, "training.loss"
    loss: SampleLoss = made_by_factory(block.factory, block.config, what=what, source=source, field=field)
    return loss


def weighted_mean(losses: object, weights: Tensor, *, what: str, divisor: float | None = None) -> Tensor:
    """``sum(w * l) / sum(w)`` of one batch, or over ``divisor``; a scalar. ``WrongShape`` unless there is one loss per sample."""
    if not isinstance(losses, Tensor):
        raise WrongShape(weights.shape, (), what=f"{what} (a {type(losses).__name__})")
    if losses.shape != weights.shape:
        raise WrongShape(weights.shape, losses.shape, what=what)
    total = torch.dot(losses.to(weights.dtype), weights)
    return total / weights.sum() if divisor is None else total / divisor
