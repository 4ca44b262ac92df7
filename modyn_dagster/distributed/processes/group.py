"""Groups of ranks as processes of this machine."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Pipe, wait
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeVar

from modyn_dagster.distributed.messages import function_of_rank, pack_call, unpack_answer
from modyn_dagster.distributed.protocols import Rank, Resources
from modyn_dagster.errors import ConfigError, WorkerLost

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Seconds in which a rank whose failure explains that of another one is waited for.
_GRACE: Final = 2.0


class LocalGroup:
    """Ranks as new interpreters with the import path of this process, which talk to each other over the loopback interface.

    They are no forks: they inherit neither threads nor locks, and do not run the main program again. They end when this process
    does, however it ends.
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
            members: list[_Member] = []
            try:
                # All start before the first is told what to do; one that cannot start ends those before it.
                for place in places:
                    members.append(_Member(place, _environment(resources.cpus, gpus[place.index])))  # noqa: PERF401
                for member in members:
                    member.tell(function, argument)
                return _results(members)
            finally:
                for member in members:
                    member.end()


class _Member:
    """Process of one rank, as its parent sees it."""

    def __init__(self, place: Rank, environment: dict[str, str]) -> None:
        self.place = place
        self.pipe, theirs = Pipe()
        command = [sys.executable, "-m", "modyn_dagster.distributed.processes.rank", str(theirs.fileno())]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, pass_fds=[theirs.fileno()])
        except BaseException:
            self.pipe.close()
            raise
        finally:
            theirs.close()

    def tell(self, function: Callable[..., Any], argument: Any) -> None:
        # A process that is gone is found when its answer is read.
        with suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send_bytes(pack_call(function_of_rank, (function, self.place, argument)))

    def answer(self) -> bytes:
        """Receive the packed answer; ``WorkerLost`` when the process is gone."""
        try:
            return self.pipe.recv_bytes()
        except (EOFError, ConnectionResetError):
            raise WorkerLost(f"rank {self.place.index} of {self.place.size}", self._ending()) from None

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self.pipe.close()

    def _ending(self) -> str:
        try:
            code = self._process.wait(timeout=_GRACE)
        except subprocess.TimeoutExpired:
            return "it does not answer"
        return f"killed by signal {-code}" if code < 0 else f"ended with status {code}"


def _results(members: Sequence[_Member]) -> list[Any]:
    """Results by rank; raises the error of the first rank that fails.

    A rank may report that it lost another one before the end of that one is seen here, so such a report waits for what
    explains it.
    """
    waiting = {member.pipe: member for member in members}
    results: dict[int, Any] = {}
    report: WorkerLost | None = None
    until: float | None = None
    while waiting and (ready := wait(list(waiting), None if until is None else max(0.0, until - monotonic()))):
        for member in [waiting.pop(pipe) for pipe in list(waiting) if pipe in ready]:
            answer = member.answer()
            try:
                results[member.place.index] = unpack_answer(answer)
            except WorkerLost as error:
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
    own = {
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        "CUDA_VISIBLE_DEVICES": gpus,
        "OMP_NUM_THREADS": str(cpus),
        # Nothing of a group is reachable from outside of this machine.
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
    }
    return os.environ | own
