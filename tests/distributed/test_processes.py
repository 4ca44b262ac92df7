"""A pool of processes: order, errors, deaths of workers and of their parent, and what is left afterwards."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from modyn_dagster.distributed.in_process import InProcessPool
from modyn_dagster.distributed.opening import named_pool, open_pool
from modyn_dagster.distributed.processes.pool import ProcessPool
from modyn_dagster.distributed.protocols import Pool, Resources
from modyn_dagster.errors import ConfigError, CorruptFile, DeletedKey, RunError, WorkerLost, WriteFailed, error_class
from modyn_dagster.settings import Settings
from tests.distributed import calls
from tests.distributed.children import workers_of

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPool]:
    with ProcessPool(2) as opened:
        yield opened


def wait_until_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=20)
    assert alive == []


@pytest.mark.parametrize(("n", "taken"), [(0, 0), (1, 1), (7, 3), (20, 20), (20, 1), (3, 0)])
def test_results_come_in_the_order_of_the_items_also_to_a_caller_that_stops_early(pool: ProcessPool, n: int, taken: int) -> None:
    numbers = [number * 7 % 11 - 3 for number in range(n)]
    results = pool.map(calls.doubled, iter(numbers))
    assert [next(results) for _ in range(taken)] == [2 * number for number in numbers[:taken]]


def test_workers_are_started_once_and_kept() -> None:
    with ProcessPool(2) as pool:
        pids = {*pool.map(calls.pid_after, [0.05] * 6), *pool.map(calls.pid_after, [0.05] * 6)}
        assert len(pids) == 2
        assert os.getpid() not in pids


def test_nothing_starts_before_there_is_work() -> None:
    before = workers_of(os.getpid())
    with ProcessPool(3) as pool:
        assert list(pool.map(calls.doubled, [])) == []
        assert workers_of(os.getpid()) == before
        assert isinstance(pool, ProcessPool)
        assert pool.workers == 3


def test_each_worker_has_the_threads_that_its_calls_ask_for(pool: ProcessPool) -> None:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    for cpus in (1, 3, 1):
        assert list(pool.map(calls.variables, [names], Resources(cpus=cpus))) == [[str(cpus)] * 2]


def test_a_call_may_print_and_finds_no_input(pool: ProcessPool) -> None:
    assert list(pool.map(calls.prints, ["one", "two"])) == ["", ""]


@pytest.mark.parametrize(
    ("kind", "error", "classed"),
    [
        ("corrupt", CorruptFile, "permanent"),
        ("deleted", DeletedKey, "other"),
        ("full", WriteFailed, "transient"),
        ("beside", RunError, "other"),
        ("foreign", calls.Unsendable, "other"),
        ("unicode", UnicodeDecodeError, "other"),
    ],
)
def test_errors_keep_class_text_and_causes(pool: ProcessPool, kind: str, error: type[Exception], classed: str) -> None:
    with pytest.raises(error) as ours:
        calls.fails(kind)
    with pytest.raises(error) as theirs:
        list(pool.map(calls.fails, [kind]))
    assert str(theirs.value) == str(ours.value)
    assert error_class(theirs.value) == error_class(ours.value) == classed
    assert "in fails" in theirs.value.__notes__[0]


def test_fields_of_errors_arrive_as_far_as_they_can(pool: ProcessPool) -> None:
    with pytest.raises(DeletedKey) as deleted:
        list(pool.map(calls.fails, ["deleted"]))
    assert deleted.value.key == 17
    with pytest.raises(calls.Unsendable) as foreign:
        list(pool.map(calls.fails, ["foreign"]))
    assert foreign.value.number == 3
    assert "lock object" in str(foreign.value.lock)


def test_an_error_stands_in_the_place_of_its_result(pool: ProcessPool) -> None:
    results = pool.map(calls.fails_after, [0.0])
    with pytest.raises(RunError, match="failed after"):
        next(results)
    with pytest.raises(StopIteration):
        next(results)
    assert list(pool.map(calls.doubled, [4])) == [8]


def test_a_caller_that_stops_cancels_what_has_not_begun(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(20)]
    with ProcessPool(1) as pool:
        results = pool.map(calls.slow_note, paths)
        next(results)
        results.close()  # type: ignore[attr-defined]  # it is a generator
        assert list(pool.map(calls.doubled, [1])) == [2]
    assert 1 <= len(list(tmp_path.iterdir())) <= 3


def test_a_worker_that_dies_costs_its_item_one_more_try(pool: ProcessPool, tmp_path: Path) -> None:
    first, *_ = pool.map(calls.dies_once, [tmp_path / "mark"])
    assert int(first) not in {child.pid for child in workers_of(os.getpid())}
    assert list(pool.map(calls.doubled, range(5))) == [0, 2, 4, 6, 8]


def test_an_item_that_kills_two_workers_is_named(pool: ProcessPool, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(WorkerLost, match=r"mark: a worker process died \(its process ended with status 7\)"):
        list(pool.map(calls.dies, [mark]))
    assert mark.read_text() == "xx"
    assert list(pool.map(calls.doubled, [3])) == [6]


def test_a_worker_killed_while_idle_is_replaced(pool: ProcessPool) -> None:
    list(pool.map(calls.pid_after, [0.05] * 4))
    for child in workers_of(os.getpid()):
        child.kill()
    assert list(pool.map(calls.doubled, range(8))) == list(range(0, 16, 2))


def test_closing_ends_calls_under_way_and_leaves_no_process() -> None:
    before = {child.pid for child in workers_of(os.getpid())}
    with ProcessPool(2) as pool:
        results = pool.map(calls.pid_after, [0.0, 60.0, 60.0, 60.0])
        next(results)
        mine = [child for child in workers_of(os.getpid()) if child.pid not in before]
        assert len(mine) == 2
    # Not even as zombies.
    assert not any(psutil.pid_exists(child.pid) for child in mine)
    with pytest.raises((ConfigError, WorkerLost)):
        next(pool.map(calls.doubled, [1]))


PARENT = """
import sys
from modyn_dagster.distributed.processes.pool import ProcessPool
from tests.distributed import calls
from tests.distributed.children import workers_of
with ProcessPool(2) as pool:
    results = pool.map(calls.pid_after, [0.2, 0.2, 60.0, 60.0])
    print(next(results), next(results), flush=True)
    list(results)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.soak("distributed"))])
def test_workers_end_in_the_middle_of_a_call_when_their_parent_is_killed(number: signal.Signals) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env=environment)
    assert parent.stdout is not None
    parent.stdout.readline()
    workers = workers_of(parent.pid)
    assert len(workers) == 2
    parent.send_signal(number)
    parent.wait()
    parent.stdout.close()
    wait_until_gone(workers)


def test_what_cannot_be_sent_is_refused(pool: ProcessPool) -> None:
    with pytest.raises(ConfigError, match="must be a function at the top of a module"):
        next(pool.map(lambda number: number, [1]))
    with pytest.raises(ConfigError, match="must be a value that can be sent to another process"):
        next(pool.map(calls.unsendable, [threading.Lock()]))
    with pytest.raises(TypeError, match="cannot be sent to another process"):
        next(pool.map(calls.unsendable, [1]))
    with pytest.raises(ConfigError, match="must be 0"):
        pool.map(calls.doubled, [1], Resources(gpus=1))
    for local in (pool, InProcessPool()):
        with pytest.raises(ConfigError, match="memory: must be 0: calls on this machine share its memory"):
            local.map(calls.doubled, [1], Resources(memory=1))
    with pytest.raises(ConfigError, match="at least 1"):
        ProcessPool(0)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "two", "processes", "processes:", "processes:0", "threads:3", ":", " "])
def test_a_pool_that_nobody_knows_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="MODYN_WORKERS"):
        named_pool(text)
    with pytest.raises(ConfigError, match="MODYN_WORKERS"):
        Settings.from_environment({"MODYN_WORKERS": text})


def test_a_pool_is_opened_by_its_name() -> None:
    assert Settings.from_environment({}).workers is None
    given = Settings.from_environment({"MODYN_WORKERS": "2"})
    assert given.workers == "processes:2"
    assert Settings.from_environment(given.environment()).workers == "processes:2"
    with open_pool(given.workers) as opened:
        assert opened is not None
        pool: Pool = opened
        assert (pool.workers, list(pool.map(calls.doubled, [21]))) == (2, [42])
    with open_pool(None) as opened:
        assert opened is None


def test_a_pool_that_is_never_closed_ends_with_its_process() -> None:
    program = PARENT.replace("with ProcessPool(2) as pool:", "pool = ProcessPool(2)\nif True:").replace("list(results)", "")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment, check=True)
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(set(pids)) == 2
    assert not any(psutil.pid_exists(pid) for pid in pids)
