"""Protocols that the packages know: whether workers are processes of this machine or of a cluster is nobody's business above.

Results are a function of the items alone. No implementation lets the number of workers, their order or a repeated call show.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

from modyn_dagster.errors import ConfigError

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Resources:
    """Share of a machine that one call takes.

    Attributes:
        cpus: cores, and the number of threads of the call.
        gpus: GPUs; a call sees only those it was given.
        memory: bytes, 0 for no bound. Pools and groups of this machine refuse others: ``resources`` of a pipeline reserve memory
            for a run and its workers together.
    """

    cpus: int = 1
    gpus: int = 0
    memory: int = 0

    def without_memory(self, workers: str) -> Self:
        """Return the resources of a call on this machine; ``ConfigError`` names the workers where they bound the memory."""
        if self.memory:
            rule = "must be 0: calls on this machine share its memory; `resources` of the pipeline reserve some for a run"
            raise ConfigError(workers, "memory", self.memory, rule)
        return self


class Pool(Protocol):
    """Workers to which independent calls are dealt."""

    @property
    def workers(self) -> int:
        """Calls that run at the same time."""
        ...

    def map(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        resources: Resources = Resources(),
    ) -> Iterator[Result]:
        """Call a function of a module with each item; results come in the order of the items, as they are asked for.

        A call may happen more than once, as a worker may die over it: the function writes files by rename alone, and commits
        nothing. Function, items and results are small and travel between processes; samples and weights travel as files.

        Raises:
            WorkerLost: workers died over the same item again and again.
        """
        ...


@dataclass(frozen=True, slots=True)
class Rank:
    """The place of a process in a group.

    Attributes:
        index: from 0 to ``size - 1``.
        size: number of ranks.
        address: meeting point of the group for ``torch.distributed``: ``tcp://host:port``, or ``file://path`` on one machine.
    """

    index: int
    size: int
    address: str


class Group(Protocol):
    """Processes that start together, work together, and end together."""

    def run(
        self,
        function: Callable[[Rank, Item], Result],
        argument: Item,
        ranks: int,
        resources: Resources = Resources(),
    ) -> list[Result]:
        """Call a function of a module in every rank with the same argument; return the results by rank.

        The first rank that fails or dies ends the others within seconds, and its error is raised.

        Raises:
            WorkerLost: the process of a rank died.
        """
        ...
