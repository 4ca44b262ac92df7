"""Weights divided among the ranks: each holds a part of every tensor, and a whole layer only while that computes (FSDP).

Source: Zhao et al., PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel, VLDB 2023; ``fully_shard`` of torch.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from modyn_dagster.errors import ConfigError
from modyn_dagster.training.team.team import Team

Tree = TypeVar("Tree")


class Sharding:
    """Division of a model's weights, gradients and optimizer states among the ranks of a team, by their first axis.

    Layers that follow each other in ``nn.Sequential`` or ``nn.ModuleList`` are gathered one by one, all other weights together.
    All ranks call all methods, in the same order, and compute the layers in the same order: where the forward pass chooses among
    them by the samples, a step ends with ``ConfigError``, or with the rank where ranks compute different numbers of layers.

    Args:
        body: body of the model, whose parameters become tensors with a part on each rank (``DTensor``), on the team's device.
        team: ranks that train it.
        source: name of the pipeline, for errors.

    Raises:
        ConfigError: a weight has no axis to divide, or belongs to two layers.
    """

    def __init__(self, body: nn.Module, team: Team, source: str) -> None:
        # Imported here: most trainings do without, and it takes a while.
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard

        self._team = team
        mesh = init_device_mesh(team.device.type, (team.size,))
        units = [*_layers(body), body]
        _require_own_weights(units, source)
        names = {module: name for name, module in body.named_modules()}
        layers = [names[unit] or "all else" for unit in units]
        for place, unit in enumerate(units):
            try:
                fully_shard(unit, mesh=mesh, reshard_after_forward=True)
            except ValueError as error:
                raise _refused(source, f"cannot divide the model's weights: {error}") from error
            sharded = cast(FSDPModule, unit)
            # Gradients are added up, as those of whole models are.
            sharded.set_gradient_divide_factor(1.0)
            sharded.set_force_sum_reduction_for_comms(enable=True)
            sharded.set_custom_all_gather(cast(Any, _Gathering(team, layers, place, source)))
            sharded.set_custom_reduce_scatter(cast(Any, _Summing(team, layers, place, source)))
        cast(FSDPModule, body).set_reduce_scatter_unused_params(reduce_scatter_unused_params=True)

    def whole(self, tree: Tree, *, kept: bool = True) -> Tree:
        """Replace every divided tensor in a tree of dicts, lists and tuples by the whole one; by None where not ``kept``."""
        return cast(Tree, self._mapped(tree, lambda tensor: self._gathered(tensor, kept=kept)))

    def load_optimizer(self, optimizer: Optimizer, saved: Mapping[str, Any]) -> None:
        """Continue an optimizer from its whole state."""
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        numbers = [number for group in saved["param_groups"] for number in group["params"]]
        own = dict(zip(numbers, parameters, strict=True))
        state = {
            number: {name: part_of(value, own[number]) if isinstance(value, Tensor) else value for name, value in parts.items()}
            for number, parts in saved["state"].items()
        }
        optimizer.load_state_dict({"state": state, "param_groups": saved["param_groups"]})

    def total(self, number: float) -> float:
        """Sum a number of all ranks."""
        return float(self._team.total(torch.tensor([number], dtype=torch.float64, device=self._team.device))[0])

    def clip(self, gradients: Sequence[Tensor], norm: float) -> None:
        """Scale the parts of all gradients so that the norm of the whole does not exceed a bound, as torch does."""
        square = self.total(sum(float(gradient.double().square().sum()) for gradient in gradients))
        factor = min(1.0, norm / (math.sqrt(square) + 1e-6))
        for gradient in gradients:
            gradient.mul_(factor)

    def _gathered(self, tensor: Tensor, *, kept: bool) -> Tensor | None:
        part, width = local(tensor).detach(), -(-tensor.shape[0] // self._team.size)
        counts = [min(width, max(0, tensor.shape[0] - i * width)) for i in range(self._team.size)]
        (found,) = self._team.rows([part], counts)
        return found if kept else None

    def _mapped(self, tree: object, change: Callable[[Tensor], object]) -> object:
        if isinstance(tree, Tensor):
            return tree if local(tree) is tree else change(tree)
        if isinstance(tree, dict):
            return {name: self._mapped(value, change) for name, value in tree.items()}
        if isinstance(tree, list):
            return [self._mapped(value, change) for value in tree]
        if type(tree) is tuple:
            return tuple(self._mapped(value, change) for value in tree)
        return tree


def local(tensor: Tensor) -> Tensor:
    """Part of a divided tensor on this rank; a whole tensor as it is."""
    # A method of divided tensors alone.
    part: Callable[[], Tensor] | None = getattr(tensor, "to_local", None)
    return tensor if part is None else part()


def part_of(whole: Tensor, like: Tensor) -> Tensor:
    """Divide a whole tensor as another one of its shape is divided; the tensor itself beside a whole one, or of another shape."""
    if local(like) is like or local(whole) is not whole or whole.shape != like.shape:
        return whole
    from torch.distributed.tensor import DTensor

    assert isinstance(like, DTensor)  # noqa: S101 - for the type checker
    mesh = like.device_mesh
    width = -(-len(whole) // mesh.size())
    part = whole[mesh.get_local_rank() * width :][:width].to(like.device).clone()
    return DTensor.from_local(part, mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride())


class _Messages:
    """Messages about one layer of a divided model, which end with ``WorkerLost`` when a rank is gone."""

    #: Gathering and summing of the same layer are different places of a step.
    kind = 0

    def __init__(self, team: Team, layers: Sequence[str], place: int, source: str) -> None:
        self._team, self._layers, self._source = team, layers, source
        self._number = 2 * place + self.kind

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return memory for a message."""
        return torch.empty(*size, dtype=dtype, device=device)

    def meet(self) -> None:
        """Check that all ranks are at this layer: equal layers have messages of one size, and would be taken for each other."""
        (numbers,) = self._team.rows([torch.tensor([self._number])], [1] * self._team.size)
        if bool((numbers != self._number).any()):
            found = " and ".join(dict.fromkeys(self._layers[number // 2] for number in numbers.tolist()))
            rule = f"ranks are at different layers ({found}): the forward pass chooses them by the samples"
            raise _refused(self._source, rule)


class _Gathering(_Messages):
    """Gathering of a layer's weights."""

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> None:
        """Fill in the weights of all ranks."""
        self.meet()
        parts = list(output_tensor.view(self._team.size, -1).unbind(0))
        self._team.told(lambda: dist.all_gather(parts, input_tensor, group=group))


class _Summing(_Messages):
    """Sums of gradients in the order of the ranks, each rank those of its part."""

    kind = 1

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False) -> None:
        """Fill in the sums."""
        self.meet()
        output_tensor.copy_(self._team.own_sums(input_tensor))


def _layers(body: nn.Module) -> Iterator[nn.Module]:
    """Layers that follow each other, the inner ones first; not the body."""
    chains = nn.Sequential | nn.ModuleList
    listed = dict.fromkeys(child for part in body.modules() if isinstance(part, chains) for child in part.children())
    for module in reversed(list(body.modules())):
        if module in listed and not isinstance(module, chains) and any(True for _ in module.parameters()):
            yield module


def _require_own_weights(units: Sequence[nn.Module], source: str) -> None:
    """Check that no weight belongs to two of these layers, of which inner ones come first."""
    owners: dict[int, nn.Module] = {}
    taken: set[nn.Module] = set()
    for unit in units:
        own = [module for module in unit.modules() if module not in taken]
        taken.update(own)
        for parameter in (parameter for module in own for parameter in module.parameters(recurse=False)):
            if owners.setdefault(id(parameter), unit) is not unit:
                raise _refused(source, "two layers of the model have one weight, which cannot be divided twice")


def _refused(source: str, rule: str) -> ConfigError:
    return ConfigError(source, "training.strategy", "fsdp", f"{rule}; use `strategy: replicated`")
