"""Functions that tests call on nodes: workers import them by name."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from modyn_dagster.distributed.protocols import Rank
from modyn_dagster.errors import ConfigError


def square(number: int) -> int:
    return number * number


def refuse(number: int) -> int:
    raise ConfigError("spec", "field", number, "must be another one")


def place(seconds: float) -> str:
    """Node of the call."""
    import ray

    time.sleep(seconds)
    return str(ray.get_runtime_context().get_node_id())


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


def second_rank_dies(rank: Rank, seconds: float) -> None:
    if rank.index == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(seconds)


def second_rank_refuses(rank: Rank, seconds: float) -> None:
    if rank.index == 1:
        raise ConfigError("spec", "field", rank.index, "must be another one")
    time.sleep(seconds)
