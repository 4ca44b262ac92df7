"""Functions that tests call on nodes: workers import them by name."""

import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from modyn_dagster.distributed.protocols import Rank
from modyn_dagster.errors import ConfigError
from modyn_dagster.settings import Settings
from tests.cluster.nodes import NODE_MARK

if TYPE_CHECKING:
    from tests.training.ranks.together import Case

#: Longest wait of a rank for another one by itself, in seconds.
FOREVER: Final = 300.0


def square(number: int) -> int:
    return number * number


def refuse(number: int) -> int:
    raise ConfigError("spec", "field", number, "must be another one")


def place(seconds: float) -> str:
    """Node of the call."""
    import ray

    time.sleep(seconds)
    return str(ray.get_runtime_context().get_node_id())


def place_unless(mark: str) -> str:
    """Node of the call, but for one node."""
    return place(1.0) if os.environ[NODE_MARK] != mark else ""


def square_slowly(call: tuple[int, str, float]) -> int:
    """Square a number, which takes so many seconds on one node."""
    number, slow_mark, seconds = call
    time.sleep(seconds if os.environ[NODE_MARK] == slow_mark else 0.2)
    return number**2


def square_behind_a_gate(call: tuple[int, str, str]) -> int:
    """Square a number in a fifth of a second; on one node that waits for a file, and elsewhere from 20 on for that node."""
    number, slow_mark, gate = call
    time.sleep(0.2)
    taken, slow = Path(f"{gate}.taken"), os.environ[NODE_MARK] == slow_mark
    if slow:
        taken.touch()
    while not Path(gate).exists() and (slow or (number >= 20 and not taken.exists())):
        time.sleep(0.05)
    return number**2


def die_once(flag: str) -> str:
    """The first call ends its process without a word."""
    path = Path(flag)
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def die(_: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def begin_and_wait(folder: str) -> str:
    """Say on which node a call has begun, and end it when a file says so."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    (Path(folder) / f"begun-{node}").touch()
    while not (Path(folder) / "open").exists():
        time.sleep(0.05)
    return str(node)


def call_behind_a_gate(call: tuple[str, Callable[[Any], Any], Any]) -> Any:
    """Say on which node a call has begun, wait for a file that opens the gate, and make the call."""
    folder, function, item = call
    begin_and_wait(folder)
    return function(item)


def reduce_sum(rank: Rank, number: float) -> float:
    """Sum of ``number * (index + 1)`` over the ranks."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=rank.address, rank=rank.index, world_size=rank.size)
    try:
        tensor = torch.tensor([number * (rank.index + 1)], dtype=torch.float64)
        dist.all_reduce(tensor)
        return float(tensor[0])
    finally:
        dist.destroy_process_group()


def variables_in_rank(rank: Rank, names: Sequence[str]) -> list[str | None]:
    """Environment variables of a rank."""
    return [os.environ.get(name) for name in names]


def train_and_wait(rank: Rank, call: "tuple[Case, str, int]") -> None:
    """Train up to a step; then say on which node this rank is, and go on when a file says so."""
    import torch

    from modyn_dagster.training import CheckpointFile, FastPath, Task, TrainingProgress, train
    from modyn_dagster.training.team.team import team_of
    from tests.training.ranks.together import rows

    case, folder, step = call

    def told(progress: TrainingProgress) -> None:
        if progress.step == step:
            written = Path(folder, f"{rank.index}.tmp")
            written.write_text(os.environ[NODE_MARK])
            written.rename(Path(folder, f"rank-{rank.index}"))
            while not Path(folder, "open").exists():
                time.sleep(0.05)

    data = rows(case.n, 1).data(fast_path=FastPath(cache_bytes=0))
    given: dict[str, Any] = {"task": Task("class"), "seed": 7, "threads": 1, "source": "pipeline p", "progress": told}
    assert case.checkpoint is not None
    with team_of(rank, torch.device("cpu"), timeout=FOREVER) as team:
        train(case.spec, data, checkpoint=CheckpointFile(case.checkpoint), team=team, **given)


def size_in_rank(rank: Rank, call: tuple[str, str]) -> int:
    """Length of an argument, once a file opens the gate."""
    gate, content = call
    Path(f"{gate}-{rank.index}").touch()
    while not Path(gate).exists():
        time.sleep(0.05)
    return len(content)


def second_rank_dies(rank: Rank, seconds: float) -> None:
    if rank.index == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(seconds)


def second_rank_refuses(rank: Rank, seconds: float) -> None:
    if rank.index == 1:
        raise ConfigError("spec", "field", rank.index, "must be another one")
    time.sleep(seconds)


def password_of(settings: Settings) -> str:
    """Beginning of the password that a node puts into settings."""
    print(f"{type(settings).__name__} have come")  # noqa: T201 - a line in the worker's log
    return str(settings.postgres_url).partition("modyn:")[2].partition("@")[0][:4]


def password_in_rank(rank: Rank, settings: Settings) -> str:
    return password_of(settings)


def host_of_rank(rank: Rank, argument: None) -> str:
    """Name of the host of a rank."""
    return socket.gethostname()
