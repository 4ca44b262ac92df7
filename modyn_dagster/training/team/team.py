"""Ranks that train one model together, and what they tell each other.

Every message has a fixed order: rows come by rank, and sums are taken by rank, term after term. So the bits of a result depend
on the number of ranks and on nothing that a backend chooses, such as the algorithm or the topology of an all-reduce.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from fastpath.order import part_sizes
from modyn_dagster.distributed.protocols import Rank
from modyn_dagster.errors import RanksApart, TrainingError, one_line
from modyn_dagster.training.states import packed, unpacked

Told = TypeVar("Told")


@dataclass(frozen=True, slots=True)
class Team:
    """One rank among those that train a model together. All ranks call the same methods in the same order.

    Attributes:
        index: index of this rank.
        size: number of ranks.
        device: device of the messages.
        timeout: longest wait for another rank, in seconds.
    """

    index: int
    size: int
    device: torch.device
    timeout: float

    @property
    def backend(self) -> str:
        """Library that carries the messages: NCCL between GPUs, else gloo."""
        return backend_for(self.device)

    def counts(self, n: int) -> tuple[int, ...]:
        """Shares of a batch of ``n`` samples, by rank."""
        return tuple(part_sizes(n, self.size))

    def rows(self, tensors: Sequence[Tensor], counts: Sequence[int]) -> list[Tensor]:
        """Gather rows of all ranks, those of rank 0 first.

        Args:
            tensors: tensors of this rank with as many rows as its count, or more, which are left out; dtypes and trailing
                shapes are those of every rank.
            counts: number of rows by rank.
        """
        n, most = counts[self.index], max(counts)
        sent = _padded(pack([tensor[:n] for tensor in tensors]), most)
        gathered = self._gathered(sent.to(self.device))
        joined = torch.cat([part[:count] for part, count in zip(gathered, counts, strict=True)])
        return unpack(joined.to(tensors[0].device), tensors)

    def total(self, numbers: Tensor) -> Tensor:
        """Sum numbers ``[n]`` of all ranks, in the order of the ranks: each rank sums one part, and gives it to the others."""
        width = -(-len(numbers) // self.size)
        part = self.own_sums(_padded(numbers, width * self.size))
        return torch.cat(self._gathered(part))[: len(numbers)]

    def own_sums(self, numbers: Tensor) -> Tensor:
        """Sum the part of this rank of numbers ``[size * n]`` of all ranks, in the order of the ranks: ``[n]``."""
        received = torch.empty_like(numbers)
        self.told(lambda: dist.all_to_all_single(received, numbers))
        parts = received.view(self.size, -1).unbind(0)
        part = parts[0].clone()
        for other in parts[1:]:
            part += other
        return part

    def states(self, state: object) -> list[Any]:
        """Gather a small state of every rank: anything that a checkpoint can hold."""
        content = torch.frombuffer(bytearray(packed(state)), dtype=torch.uint8)
        (sizes,) = self.rows([torch.tensor([len(content)])], [1] * self.size)
        (gathered,) = self.rows([content], sizes.tolist())
        return [unpacked(part.numpy().tobytes()) for part in torch.split(gathered, sizes.tolist())]

    def decided(self, *, choice: bool) -> bool:
        """Return the choice of rank 0."""
        (choices,) = self.rows([torch.tensor([choice])], [1] * self.size)
        return bool(choices[0])

    def require_same(self, what: str, value: object) -> None:
        """Check that a value is the same on every rank; ``TrainingError`` otherwise."""
        values = self.states(value)
        for index, other in enumerate(values):
            if other != values[0]:
                raise TrainingError(f"{what} of rank {index} differs from that of rank 0: {other} and {values[0]}")

    def _gathered(self, sent: Tensor) -> list[Tensor]:
        received = [torch.empty_like(sent) for _ in range(self.size)]
        self.told(lambda: dist.all_gather(received, sent.contiguous()))
        return received

    def told(self, message: Callable[[], Told]) -> Told:
        """Return the result of a message; ``RanksApart`` where another rank does not take part in it."""
        try:
            return message()
        except RuntimeError as error:
            raise RanksApart(f"rank {self.index} of {self.size}", self.timeout, one_line(error)) from error


def backend_for(device: torch.device) -> str:
    """Return the backend of ``torch.distributed`` for a device."""
    return "nccl" if device.type == "cuda" else "gloo"


@contextmanager
def team_of(rank: Rank, device: torch.device, *, timeout: float) -> Iterator[Team]:
    """Meet the other ranks, and part at the end. ``timeout`` is the longest wait for another rank, in seconds.

    Raises:
        RanksApart: the others did not come, or cannot be reached.
    """
    team = Team(rank.index, rank.size, device, timeout)
    place: dict[str, Any] = {"init_method": rank.address, "rank": rank.index, "world_size": rank.size}
    if device.type == "cuda":
        place["device_id"] = torch.device("cuda", torch.cuda.current_device())
    team.told(lambda: dist.init_process_group(team.backend, timeout=timedelta(seconds=timeout), **place))
    try:
        yield team
    finally:
        dist.destroy_process_group()


def pack(tensors: Sequence[Tensor]) -> Tensor:
    """Pack tensors of ``n`` rows each into ``uint8[n, bytes of a row]``.

    >>> rows = torch.tensor([1, 2]), torch.tensor([[0.5], [1.5]])
    >>> packed = pack(rows)
    >>> packed.shape, [tensor.tolist() for tensor in unpack(packed, rows)]
    (torch.Size([2, 12]), [[1, 2], [[0.5], [1.5]]])
    """
    return torch.cat([_flat(tensor).view(torch.uint8) for tensor in tensors], dim=1)


def unpack(packed: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Unpack rows into tensors with the dtypes and trailing shapes of ``like``."""
    widths = [_width(tensor) * tensor.element_size() for tensor in like]
    parts = torch.split(packed, widths, dim=1)
    # A copy, aligned as torch aligns its own memory.
    own = [part.clone(memory_format=torch.contiguous_format).reshape(-1) for part in parts]
    found = [part.view(tensor.dtype) for part, tensor in zip(own, like, strict=True)]
    return [part.reshape(len(packed), *tensor.shape[1:]) for part, tensor in zip(found, like, strict=True)]


def _flat(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(len(tensor), _width(tensor))


def _width(tensor: Tensor) -> int:
    return math.prod(tensor.shape[1:])


def _padded(rows: Tensor, n: int) -> Tensor:
    """Append zeros up to ``n`` rows."""
    return torch.cat([rows, rows.new_zeros(n - len(rows), *rows.shape[1:])]) if len(rows) < n else rows
