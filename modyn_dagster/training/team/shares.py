"""Shares of a batch: what a rank must know of the samples of the others."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import torch
from torch import Tensor, nn

from modyn_dagster.errors import ConfigError, TrainingError
from modyn_dagster.training.inputs.batch import Batch, Whole
from modyn_dagster.training.states import flatten, state_digest
from modyn_dagster.training.team.dropout import Masks, share_dropouts
from modyn_dagster.training.team.functional_dropout import FunctionalDropout
from modyn_dagster.training.team.sharding import Sharding
from modyn_dagster.training.team.team import Team


class Shares:
    """Division of every batch among the ranks of a team, by position.

    Args:
        team: ranks that train together.
        source: name of the pipeline, for errors.

    Attributes:
        team: see above.
        masks: masks of dropout by sample.
        sharding: division of the model's weights; None where every rank holds all.
        meet_in_forward: True if ranks wait for each other in the forward pass, so that one without samples must make it too.
    """

    def __init__(self, team: Team, source: str) -> None:
        self.team, self._source, self._compared = team, source, False
        self.masks = Masks(team.device, source)
        self._dropout: FunctionalDropout | None = None
        self.meet_in_forward = False
        self.sharding: Sharding | None = None

    def idles(self, batch: Batch) -> bool:
        """True if this rank has nothing to compute for a batch."""
        return batch.is_idle and not self.meet_in_forward

    @property
    def part(self) -> tuple[int, int]:
        """Index of this rank and number of ranks, for ``Batching``."""
        return self.team.index, self.team.size

    def complete(self, batch: Batch, n: int) -> Batch:
        """Complete this rank's share of a batch of ``n`` samples by keys, targets and weights of all of them.

        A rank whose share is empty has read a sample all the same, so that code of the project sees no empty batch.
        """
        counts = self.team.counts(n)
        keys, targets, weights = self.team.rows([batch.keys, batch.targets, batch.weights], counts)
        whole = Whole(keys, targets, weights, counts, self.team.index)
        # The exact sum, rounded once: it does not depend on the order of the samples.
        return replace(batch, weight=math.fsum(weights.tolist()), whole=whole)

    def share_dropouts(self, body: nn.Module) -> None:
        """Let every dropout of a model draw by sample, also those inside of attention and recurrent layers."""
        share_dropouts(body, self.masks)
        self._dropout = FunctionalDropout(self.masks)

    @contextmanager
    def forward(self, whole: Whole) -> Iterator[None]:
        """Draw the masks of this batch within the block, which is the forward pass."""
        with self.masks.of_step(whole), self._dropout or nullcontext():
            yield

    def outputs(self, own: Tensor, whole: Whole) -> Tensor:
        """Outputs of all ranks ``[B, n_outputs]``; gradients flow to those of this rank alone.

        A loss of all outputs thus gives every rank its part of the whole gradient, also where the loss of a sample depends on
        other samples of the batch.
        """
        if 0 in whole.counts:
            # A rank without samples has not seen every draw.
            drawing = next(rank for rank, count in enumerate(whole.counts) if count)
            self.masks.state = self.team.states(self.masks.state)[drawing]
        (gathered,) = self.team.rows([own], whole.counts)
        first, last = whole.bounds
        return torch.cat([gathered[:first], own[: last - first], gathered[last:]])

    def divide(self, body: nn.Module) -> None:
        """Divide the weights of a model among the ranks, before the first step."""
        # Every layer is gathered by all ranks, with and without samples.
        self.meet_in_forward = True
        self.sharding = Sharding(body, self.team, self._source)

    def add_up(self, body: nn.Module, loss: float) -> None:
        """Add up the gradients of all ranks after a step with this loss, which every rank has computed of all outputs.

        Raises:
            ConfigError: at the first step, a model or a loss that does not do the same on every rank.
        """
        if not self._compared:
            self._require_same(body, loss)
            self._compared = True
        if self.sharding is None:
            # The backward pass of a divided model has added them up.
            add_up_gradients(self.team, body.parameters())

    def _require_same(self, body: nn.Module, loss: float) -> None:
        buffers = state_digest(*flatten({name: buffer.detach() for name, buffer in body.named_buffers()}))
        losses, digests = zip(*self.team.states((repr(loss), buffers)), strict=True)
        if len(set(losses)) > 1:
            rule = (
                "draws random numbers or counts calls, so that it differs on every rank; it must be a function of its arguments"
            )
            raise ConfigError(self._source, "training.loss", ", ".join(losses), rule)
        if len(set(digests)) > 1:
            rule = (
                "the model's forward pass changes its buffers by the samples that it sees, and every rank sees others; train it "
                "with `ranks: 1`"
            )
            raise ConfigError(self._source, "training.ranks", self.team.size, rule)


def add_up_gradients(team: Team, parameters: Iterable[nn.Parameter]) -> None:
    """Replace every gradient by the sum of those of all ranks.

    A parameter without a gradient counts as zero where another rank has one, and keeps none where nobody has one, so that
    optimizers leave it alone as they do on one rank.

    Raises:
        TrainingError: a gradient is sparse.
    """
    by_dtype: dict[torch.dtype, list[nn.Parameter]] = defaultdict(list)
    for parameter in parameters:
        if parameter.requires_grad:
            by_dtype[parameter.dtype].append(parameter)
    for group in by_dtype.values():
        _add_up(team, group)


def _add_up(team: Team, parameters: list[nn.Parameter]) -> None:
    # One message: behind the gradients stands who has one.
    present = torch.tensor([parameter.grad is not None for parameter in parameters]).to(parameters[0])
    total = team.total(torch.cat([*map(_flat_gradient, parameters), present]))
    *sums, present = torch.split(total, [*(parameter.numel() for parameter in parameters), len(parameters)])
    for parameter, numbers, n_ranks in zip(parameters, sums, present.tolist(), strict=True):
        # A copy, aligned as torch aligns its own memory.
        parameter.grad = numbers.view_as(parameter).clone() if n_ranks else None


def _flat_gradient(parameter: nn.Parameter) -> Tensor:
    if parameter.grad is None:
        return torch.zeros_like(parameter).detach().flatten()
    if parameter.grad.is_sparse:
        raise TrainingError("training.ranks: the model has sparse gradients (an embedding with `sparse=True`); make them dense")
    return parameter.grad.flatten()
