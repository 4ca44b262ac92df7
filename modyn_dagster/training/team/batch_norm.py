"""Batch norm over the batch of all ranks (Ioffe and Szegedy 2015).

SyncBatchNorm of torch does the same on CUDA alone, and leaves the order of its sums to NCCL.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.lazy import LazyModuleMixin

from modyn_dagster.training.team.team import Team


class SharedBatchNorm(_BatchNorm):
    """Batch norm with the parameters and statistics of another one, and means over the samples of all ranks.

    All ranks must call it as often as each other in training, also with a batch of no samples.

    Args:
        original: batch norm of any number of dimensions.
        team: ranks that share every batch.
    """

    def __init__(self, original: _BatchNorm, team: Team) -> None:
        super().__init__(original.num_features, original.eps, original.momentum, original.affine, original.track_running_stats)
        self._parameters.update(original._parameters)
        self._buffers.update(original._buffers)
        self.training, self._team = original.training, team

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise ``[n, c, ...]``."""
        if not self.training:
            return super().forward(inputs)
        outputs, mean, variance, n = _Normalised.apply(inputs, self.weight, self.bias, self.eps, self._team)  # type: ignore[no-untyped-call]  # torch has no type for it
        self._follow(mean, variance * (n / (n - 1)))
        return outputs  # type: ignore[no-any-return]  # a tensor, as given back by the function

    def _check_input_dim(self, input: Tensor) -> None:
        """Take any number of dimensions."""

    @torch.no_grad()
    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        """Update the running statistics, as torch does."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked += 1
        share = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        for running, new in ((self.running_mean, mean), (self.running_var, variance)):
            running.lerp_(new.to(running), share)


class _Normalised(torch.autograd.Function):
    """Normalised and scaled inputs, and the mean, variance and number of values that they were normalised by."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, team: Team
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        axes, shape = _axes(inputs)
        values = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        own_n = inputs.numel() // inputs.shape[1]
        own_mean = values.sum(axes) / max(1, own_n)
        own_spread = (values - own_mean.view(shape)).square().sum(axes)
        rows = _of_all_ranks(team, torch.cat([own_mean.new_tensor([own_n]), own_mean, own_spread]))
        counts, means, spreads = rows[:, :1], *rows[:, 1:].chunk(2, dim=1)
        n = counts.sum()
        if n <= 1:
            raise ValueError("batch norm needs more than one value per channel; the batch of all ranks has one")
        mean = (counts * means).sum(0) / n
        # Spreads around the means of the ranks become one around the mean of all (Chan, Golub and LeVeque 1979).
        variance = (spreads + counts * (means - mean).square()).sum(0) / n
        deviation = (variance + eps).rsqrt().to(values)
        normalised = (values - mean.to(values).view(shape)) * deviation.view(shape)
        ctx.save_for_backward(normalised, deviation, weight)
        ctx.n, ctx.team = float(n), team
        outputs = normalised if weight is None or bias is None else normalised * weight.view(shape) + bias.view(shape)
        ctx.mark_non_differentiable(mean, variance, n)
        return outputs.to(inputs.dtype), mean, variance, n

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        normalised, deviation, weight = ctx.saved_tensors
        axes, shape = _axes(normalised)
        upstream = gradient.to(normalised)
        own_bias, own_weight = upstream.sum(axes), (upstream * normalised).sum(axes)
        of_bias, of_weight = _of_all_ranks(ctx.team, torch.cat([own_bias, own_weight])).sum(0).to(normalised).chunk(2)
        centred = upstream - (of_bias.view(shape) + normalised * of_weight.view(shape)) / ctx.n
        scale = deviation if weight is None else deviation * weight
        given = (centred * scale.view(shape)).to(gradient.dtype)
        # Of parameters, the share of this rank: gradients of parameters are added up afterwards.
        return (given, None, None, None, None) if weight is None else (given, own_weight, own_bias, None, None)


def share_batch_norms(body: nn.Module, team: Team) -> bool:
    """Replace every batch norm of a model by one over the batch of all ranks; True if there was one."""
    shared: dict[nn.Module, nn.Module] = {}
    for parent in list(body.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, _BatchNorm) and not isinstance(child, SharedBatchNorm):
                shared.setdefault(child, SharedBatchNorm(child, team))
                setattr(parent, name, shared[child])
    return bool(shared)


def unshareable(body: nn.Module) -> str | None:
    """Name of a batch norm that cannot be shared: one without running statistics, of lazy shape, or the model itself."""
    for name, module in body.named_modules():
        if isinstance(module, _BatchNorm) and (
            not module.track_running_stats or isinstance(module, LazyModuleMixin) or module is body
        ):
            return name or type(module).__name__
    return None


def _axes(values: Tensor) -> tuple[list[int], list[int]]:
    """Axes that are averaged over, and the shape of statistics beside values."""
    return [0, *range(2, values.ndim)], [1, -1, *[1] * (values.ndim - 2)]


def _of_all_ranks(team: Team, row: Tensor) -> Tensor:
    """Rows of all ranks in double precision, ``float64[ranks, n]``."""
    (rows,) = team.rows([row.double()[None]], [1] * team.size)
    return rows
