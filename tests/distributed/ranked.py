"""Functions that tests run in ranks; a rank imports them, and nothing of torch."""

import os
import signal
import time
from pathlib import Path

from modyn_dagster.distributed.protocols import Rank
from modyn_dagster.errors import ConfigError, RanksApart

#: Far longer than any test waits.
FOREVER = 600.0


def place(rank: Rank, argument: object) -> tuple[int, int, object]:
    return rank.index, rank.size, argument


def threads(rank: Rank, argument: object) -> str:
    return os.environ["OMP_NUM_THREADS"]


def process(rank: Rank, argument: object) -> int:
    return os.getpid()


def gpus(rank: Rank, argument: object) -> str:
    return os.environ["CUDA_VISIBLE_DEVICES"]


def one_refuses(rank: Rank, which: int) -> None:
    """The others wait for it, as in a collective that never ends."""
    if rank.index != which:
        time.sleep(FOREVER)
    try:
        raise OSError(28, "no space left on device")
    except OSError as error:
        raise ConfigError("pipeline p", "training.ranks", 2, "must please me") from error


class Peculiar(Exception):
    """An error whose arguments are others than it keeps."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


def peculiar(rank: Rank, argument: object) -> None:
    raise Peculiar(1, 2)


def one_is_killed(rank: Rank, which: int) -> None:
    if rank.index == which:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(FOREVER)


def one_leaves(rank: Rank, status: int) -> None:
    if rank.index == 1:
        os._exit(status)
    time.sleep(FOREVER)


def one_dies_and_leaves_a_fork(rank: Rank, file: Path) -> None:
    """A process that holds the pipes of the dead rank, for a while that is longer than its parent should wait."""
    if rank.index == 1:
        pid = os.fork()
        if pid == 0:
            time.sleep(30)
            os._exit(0)
        file.write_text(str(pid))
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(FOREVER)


def one_reports_the_loss_of_another(rank: Rank, reason: str) -> None:
    """Rank 0 finds that the other is gone before its parent can see why."""
    if rank.index == 0:
        raise RanksApart("rank 0 of 2", 1, "connection reset")
    time.sleep(0.3)
    raise ConfigError("pipeline p", "training.ranks", 2, reason)


def both_report_losses(rank: Rank, argument: object) -> None:
    raise RanksApart(f"rank {rank.index} of 2", 1, "connection reset")


def write_down_and_wait(rank: Rank, folder: str) -> None:
    path = Path(folder, f"{rank.index}.pid")
    path.with_suffix(".tmp").write_text(str(os.getpid()))
    path.with_suffix(".tmp").rename(path)
    time.sleep(FOREVER)
