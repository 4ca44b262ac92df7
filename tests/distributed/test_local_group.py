"""Groups of processes on this machine: they start together, and one that fails or dies ends all."""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from modyn_dagster.distributed.opening import open_group
from modyn_dagster.distributed.processes.group import LocalGroup, gpus_of_ranks
from modyn_dagster.distributed.protocols import Resources
from modyn_dagster.errors import ConfigError, NonFiniteLoss, WorkerLost, WriteFailed
from tests.distributed import ranked

pytestmark = pytest.mark.process

GROUP = LocalGroup()


def is_running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.02)


def test_every_rank_gets_its_place_and_the_argument() -> None:
    assert GROUP.run(ranked.place, {"a": (1, None)}, 3) == [(i, 3, {"a": (1, None)}) for i in range(3)]


def test_ranks_are_processes_of_their_own_with_as_many_threads_as_they_were_given() -> None:
    assert os.getpid() not in GROUP.run(ranked.process, None, 2)
    assert GROUP.run(ranked.threads, None, 1, Resources(cpus=3)) == ["3"]


@pytest.mark.parametrize("which", [0, 1])
def test_an_error_of_one_rank_ends_all_with_its_class_fields_and_cause(which: int) -> None:
    with pytest.raises(ConfigError, match=r"pipeline p: training\.ranks: must please me \(found 2\)") as found:
        GROUP.run(ranked.one_refuses, which, 2)
    assert (found.value.field, found.value.value) == ("training.ranks", 2)
    assert isinstance(found.value.__cause__, OSError)
    assert found.value.__cause__.errno == 28
    assert "one_refuses" in "".join(found.value.__notes__)


def test_an_error_that_cannot_be_pickled_keeps_its_class_and_words() -> None:
    with pytest.raises(ranked.Peculiar, match="1 and 2"):
        GROUP.run(ranked.peculiar, None, 2)


def test_a_rank_that_is_killed_ends_all() -> None:
    with pytest.raises(WorkerLost, match=r"rank 1 of 2: a worker process died \(its process was killed by signal 9\)"):
        GROUP.run(ranked.one_is_killed, 1, 2)


def test_a_killed_rank_whose_fork_lives_on_ends_all(tmp_path: Path) -> None:
    with pytest.raises(WorkerLost, match=r"rank 1 of 2: .* killed by signal 9"):
        GROUP.run(ranked.one_dies_and_leaves_a_fork, tmp_path / "pid", 2)
    pid = int((tmp_path / "pid").read_text())
    assert is_running(pid)
    os.kill(pid, signal.SIGKILL)


def test_a_rank_that_leaves_without_an_answer_ends_all() -> None:
    with pytest.raises(WorkerLost, match=r"rank 1 of 2: a worker process died \(its process ended with status 0\)"):
        GROUP.run(ranked.one_leaves, 0, 2)


def test_the_error_that_explains_the_end_of_a_rank_comes_before_the_report_of_it() -> None:
    with pytest.raises(ConfigError, match="the real one"):
        GROUP.run(ranked.one_reports_the_loss_of_another, "the real one", 2)


def test_a_loss_that_nothing_explains_is_reported() -> None:
    with pytest.raises(WorkerLost, match="another rank ended"):
        GROUP.run(ranked.both_report_losses, None, 2)


def test_ranks_end_with_their_parent_however_it_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.distributed.parent_of_ranks", str(tmp_path)]
    parent = subprocess.Popen(command, cwd=Path(__file__).parents[2])
    try:
        files = [tmp_path / f"{i}.pid" for i in range(2)]
        wait_until(lambda: all(file.exists() for file in files))
        pids = [int(file.read_text()) for file in files]
        assert all(map(is_running, pids))
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    wait_until(lambda: not any(map(is_running, pids)))


def test_no_rank_is_left_when_a_group_has_ended() -> None:
    pids = GROUP.run(ranked.process, None, 2)
    assert not any(map(is_running, pids))


def test_every_rank_sees_gpus_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-a,5,7")
    assert gpus_of_ranks(2, 2) == ["2,GPU-a", "5,7"]
    assert GROUP.run(ranked.gpus, None, 2, Resources(gpus=1)) == ["2", "GPU-a"]
    assert GROUP.run(ranked.gpus, None, 1) == [""]
    with pytest.raises(ConfigError, match="need 5 GPUs, and this process sees 4"):
        gpus_of_ranks(5, 1)


def test_a_group_of_another_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="MODYN_RANKS: must be `processes`"):
        open_group("elsewhere")


@pytest.mark.parametrize(
    "error",
    [ConfigError("s", "f", 1, "r"), NonFiniteLoss(3, float("inf"), [1, 2], {"weights": 1.0}), WriteFailed(Path("a"), "full")],
    ids=lambda error: type(error).__name__,
)
def test_errors_travel_with_class_message_and_fields(error: Exception) -> None:
    found = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (type(found), str(found), vars(found)) == (type(error), str(error), vars(error))
