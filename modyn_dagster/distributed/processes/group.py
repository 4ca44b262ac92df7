"""Groups of ranks as processes of this machine."""

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO, Final, TypeVar, cast

from modyn_dagster.distributed.children import Child, await_output, end_all, ending_of, start_child, thread_settings
from modyn_dagster.distributed.messages import function_of_rank, pack_call, receive, send, unpack_answer
from modyn_dagster.distributed.protocols import Rank, Resources
from modyn_dagster.errors import ConfigError, RanksApart, WorkerLost

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Seconds in which a rank whose failure explains that of another one is waited for.
_GRACE: Final = 2.0
#: Seconds between two looks whether silent ranks are alive.
_LOOK: Final = 0.5


class LocalGroup:
    """Ranks as new interpreters with the import path of this process, which talk to each other over the loopback interface.

    They are workers that make one call each, and end when this process does, however it ends.
    """

    def run(
        self,
        function: Callable[[Rank, Item], Result],
        argument: Item,
        ranks: int,
        resources: Resources = Resources(),  # noqa: B008 - frozen
    ) -> list[Result]:
        """Call a function of a module in every rank, and return the results by rank, as ``Group.run`` says.

        Raises:
            ConfigError: this machine has fewer GPUs than the ranks need, or a bound on memory is asked for.
            WorkerLost: the process of a rank died.
        """
        resources.without_memory("group of processes")
        gpus = gpus_of_ranks(ranks, resources.gpus)
        with tempfile.TemporaryDirectory(prefix="modyn-ranks-") as folder:
            places = [Rank(i, ranks, f"file://{Path(folder, 'meeting')}") for i in range(ranks)]
            children: list[Child] = []
            try:
                # All start before the first is told what to do; one that cannot start ends those before it.
                for place in places:
                    environment = _environment(resources.cpus, gpus[place.index])
                    children.append(start_child(["modyn_dagster.distributed.processes.worker"], environment))
                members = [_Member(place, child) for place, child in zip(places, children, strict=True)]
                for member in members:
                    member.tell(function, argument)
                return _results(members)
            finally:
                end_all(children, os.getpid())


class _Member:
    """Process of one rank, as its parent sees it."""

    def __init__(self, place: Rank, child: Child) -> None:
        self.place, self._child = place, child
        self.answers = cast(BinaryIO, child.stdout)

    @property
    def has_ended(self) -> bool:
        """True once the process is gone, though a process that it forked may hold its pipe open."""
        return self._child.poll() is not None

    def tell(self, function: Callable[..., Any], argument: Any) -> None:
        """Send the call, once the worker has said that it is ready."""
        self.answer()
        # A process that is gone is found when its answer is read.
        with suppress(BrokenPipeError, ConnectionResetError):
            send(cast(BinaryIO, self._child.stdin), pack_call(function_of_rank, (function, self.place, argument)))

    def answer(self) -> bytes:
        """Receive a message; ``WorkerLost`` when the process is gone."""
        try:
            await_output(self._child)
            return receive(self.answers)
        except (EOFError, ConnectionResetError):
            raise WorkerLost(f"rank {self.place.index} of {self.place.size}", ending_of(self._child)) from None


def _results(members: Sequence[_Member]) -> list[Any]:
    """Results by rank; raises the error of the first rank that fails.

    A rank may report that it does not reach another one before the end of that one is seen here, so such a report waits for
    what explains it.
    """
    waiting = {member.answers.fileno(): member for member in members}
    results: dict[int, Any] = {}
    report: RanksApart | None = None
    until: float | None = None
    while waiting and (until is None or monotonic() < until):
        ready = wait(list(waiting), _LOOK if until is None else min(_LOOK, max(0.0, until - monotonic())))
        for member in [waiting.pop(pipe) for pipe, other in list(waiting.items()) if pipe in ready or other.has_ended]:
            answer = member.answer()
            try:
                results[member.place.index] = unpack_answer(answer)
            except RanksApart as error:
                report, until = report or error, until or monotonic() + _GRACE
    if report is not None:
        raise report
    return [results[member.place.index] for member in members]


def gpus_of_ranks(ranks: int, gpus: int) -> list[str]:
    """GPUs that each rank sees, as ``CUDA_VISIBLE_DEVICES``; ``ConfigError`` where this process sees too few.

    >>> gpus_of_ranks(2, 0)
    ['', '']
    """
    if gpus == 0:
        return [""] * ranks
    visible = _visible_gpus()
    if len(visible) < ranks * gpus:
        rule = f"need {ranks * gpus} GPUs, and this process sees {len(visible)}"
        raise ConfigError("ranks on this machine", "gpus", gpus, rule)
    return [",".join(visible[i * gpus : (i + 1) * gpus]) for i in range(ranks)]


def _visible_gpus() -> list[str]:
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name]
    import torch

    return [str(i) for i in range(torch.cuda.device_count())]


def _environment(cpus: int, gpus: str) -> dict[str, str]:
    # Nothing of a group is reachable from outside of this machine.
    own = {"CUDA_VISIBLE_DEVICES": gpus, "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    return thread_settings(cpus) | own
