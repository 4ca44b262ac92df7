"""Claims on a machine: nothing is given twice, nobody waits for ever, and the dead leave nothing behind."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modyn_dagster.distributed.machine import Machine, visible_gpus
from modyn_dagster.distributed.protocols import Resources
from modyn_dagster.distributed.reservation import PLACED, reserved
from modyn_dagster.errors import ConfigError, NoRoom
from tests.examples import examples

GB: Final = 10**9
_SECONDS: Final = 60.0


def machine(folder: Path, cpus: int = 2, gpus: int = 1, memory: int = 8 * GB) -> Machine:
    return Machine(folder, cpus, tuple(map(str, range(gpus))), memory, look_seconds=0.002)


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + _SECONDS
    while not true():
        assert time.monotonic() < end
        time.sleep(0.002)


def ignore(line: str) -> None:
    pass


def test_two_that_want_the_only_gpu_wait_for_each_other(tmp_path: Path) -> None:
    here = machine(tmp_path)
    first = here.claim(Resources(gpus=1), "run a", ignore)
    said: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(here.claim, Resources(gpus=1), "run b", said.append)
        until(lambda: bool(said))
        assert not second.done()
        first.release()
        granted = second.result(_SECONDS)
    assert said == ["run b waits for 1 CPUs, 1 GPUs of this machine, which others have: run a (1 CPUs, 1 GPUs)"]
    assert (first.gpus, granted.gpus) == (("0",), ("0",))
    granted.release()
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_claims_that_fit_beside_each_other_do_not_wait(tmp_path: Path) -> None:
    here = machine(tmp_path, cpus=4, gpus=2)
    both = [here.claim(Resources(2, 1, 4 * GB), name, pytest.fail) for name in "ab"]
    assert [claim.gpus for claim in both] == [("0",), ("1",)]
    for claim in both:
        claim.release()


def test_a_claim_does_not_wait_for_what_it_does_not_want(tmp_path: Path) -> None:
    here = machine(tmp_path, cpus=8, gpus=1)
    first = here.claim(Resources(1, 1), "first", ignore)
    with ThreadPoolExecutor(1) as pool:
        waits_for_the_gpu = pool.submit(here.claim, Resources(1, 1), "second", ignore)
        until(lambda: len(list(tmp_path.glob("*.claim"))) == 2)
        try:
            here.claim(Resources(6), "cores", pytest.fail).release()
            assert not waits_for_the_gpu.done()
        finally:
            first.release()
        waits_for_the_gpu.result(_SECONDS).release()


def test_a_large_claim_is_not_overtaken_by_small_ones(tmp_path: Path) -> None:
    here = machine(tmp_path, cpus=4)
    order: list[str] = []

    def run(name: str, cpus: int) -> None:
        claim = here.claim(Resources(cpus), name, ignore)
        order.append(name)
        claim.release()

    first = here.claim(Resources(1), "first", ignore)
    with ThreadPoolExecutor(5) as pool:
        pool.submit(run, "large", 4)
        until(lambda: len(list(tmp_path.glob("*.claim"))) == 2)
        small = [pool.submit(run, f"small {i}", 1) for i in range(3)]
        until(lambda: len(list(tmp_path.glob("*.claim"))) == 5)
        assert order == []
        first.release()
        for each in small:
            each.result(_SECONDS)
    assert order[0] == "large"


@given(
    wants=st.lists(st.builds(Resources, st.integers(1, 3), st.integers(0, 2), st.integers(0, 4)), min_size=2, max_size=8),
    releases=st.randoms(use_true_random=False),
)
@settings(max_examples=examples(12))
def test_a_machine_is_never_given_away_twice_and_everybody_gets_a_turn(wants: list[Resources], releases) -> None:
    with tempfile.TemporaryDirectory() as folder:
        here = machine(Path(folder), cpus=3, gpus=2, memory=4)
        lock, held, done = threading.Lock(), [], []
        pauses = [releases.random() / 200 for _ in wants]

        def run(index: int) -> None:
            claim = here.claim(wants[index], str(index), ignore)
            with lock:
                held.append(claim)
                totals = [sum(getattr(each.wanted, kind) for each in held) for kind in ("cpus", "gpus", "memory")]
                names = [name for each in held for name in each.gpus]
                done.append((totals, names, len(claim.gpus) == wants[index].gpus))
            time.sleep(pauses[index])
            with lock:
                held.remove(claim)
                claim.release()

        with ThreadPoolExecutor(len(wants)) as pool:
            for each in [pool.submit(run, index) for index in range(len(wants))]:
                each.result(_SECONDS)
    assert len(done) == len(wants)
    for totals, names, is_whole in done:
        assert totals[0] <= 3 and totals[1] <= 2 and totals[2] <= 4
        assert len(set(names)) == len(names)
        assert is_whole


@pytest.mark.process
def test_the_claim_of_a_killed_process_is_free_again(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from modyn_dagster.distributed.machine import Machine;"
        "from modyn_dagster.distributed.protocols import Resources;"
        "Machine(Path(sys.argv[1]), 2, ('0',), 10).claim(Resources(gpus=1), 'killed', print); print('has', flush=True);"
        "time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "has\n"
        with ThreadPoolExecutor(1) as pool:
            said: list[str] = []
            waiting = pool.submit(machine(tmp_path).claim, Resources(gpus=1), "next", said.append)
            until(lambda: bool(said))
            process.send_signal(signal.SIGKILL)
            waiting.result(_SECONDS).release()


@pytest.mark.parametrize("wanted", [Resources(cpus=3), Resources(gpus=2), Resources(memory=9 * GB)])
def test_what_the_machine_never_has_is_refused_at_once(tmp_path: Path, wanted: Resources) -> None:
    with pytest.raises(NoRoom, match=r"run x needs .*: this machine \(.+\) has 2 CPUs, 1 GPUs, 8 GB memory; ask for less"):
        machine(tmp_path).claim(wanted, "run x", ignore)
    assert not list(tmp_path.glob("*.claim"))


def test_who_is_interrupted_while_it_waits_leaves_the_queue(tmp_path: Path) -> None:
    here = machine(tmp_path)
    first = here.claim(Resources(gpus=1), "first", ignore)

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        here.claim(Resources(gpus=1), "second", interrupt)
    assert len(list(tmp_path.glob("*.claim"))) == 1
    first.release()


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("MODYN_CLAIMS", str(tmp_path))
    monkeypatch.setenv("MODYN_GPUS", "2")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv(PLACED, raising=False)
    yield tmp_path
    assert not list(tmp_path.glob("*.claim"))


def test_a_run_sees_the_gpus_that_it_was_given_and_no_others(two_gpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with reserved(Resources(gpus=1), "outer", ignore):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
        monkeypatch.setenv("MODYN_GPUS", "0,1")
        with reserved(Resources(gpus=1), "inner", ignore):
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_a_run_without_gpus_sees_what_it_saw(two_gpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    with reserved(Resources(cpus=1), "run", ignore):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "5"
        assert len(list(two_gpus.glob("*.claim"))) == 1
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "5"


@pytest.mark.parametrize(("wanted", "placed"), [(None, ""), (Resources(gpus=7), "ray")])
def test_runs_that_name_nothing_or_that_a_cluster_placed_claim_nothing(
    two_gpus: Path, monkeypatch: pytest.MonkeyPatch, wanted: Resources | None, placed: str
) -> None:
    monkeypatch.setenv(PLACED, placed)
    with reserved(wanted, "run", pytest.fail):
        assert not list(two_gpus.glob("*.claim"))


@pytest.mark.parametrize(
    ("setting", "visible", "names"),
    [
        ("3", None, ("0", "1", "2")),
        ("0", "1,2", ()),
        ("", "2, 4", ("2", "4")),
        ("GPU-a,GPU-b", "1", ("GPU-a", "GPU-b")),
        ("", "", ()),
    ],
)
def test_gpus_are_those_of_the_setting_or_those_that_are_visible(
    monkeypatch: pytest.MonkeyPatch, setting: str, visible: str | None, names: tuple[str, ...]
) -> None:
    monkeypatch.setenv("MODYN_GPUS", setting)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_gpus() == names


@pytest.mark.parametrize("setting", ["0,0", ","])
def test_a_list_of_gpus_that_means_nothing_is_refused(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    monkeypatch.setenv("MODYN_GPUS", setting)
    with pytest.raises(ConfigError, match="environment: MODYN_GPUS"):
        visible_gpus()


def test_a_folder_that_somebody_else_has_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MODYN_CLAIMS", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("MODYN_GPUS", "0")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"modyn-claims-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="belongs to somebody else"):
        Machine.here()
