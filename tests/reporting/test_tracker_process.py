"""The tracker's own process: it ends with its parent, and what happens to it is an error that names MLflow and no secret."""

import os
import signal
import socket
from contextlib import ExitStack
from pathlib import Path
from threading import Timer

import psutil
import pytest

from modyn_dagster.errors import TrackingError, TrackingSilence
from modyn_dagster.reporting.mlflow.process import TrackerAddress, TrackerProcess
from modyn_dagster.resources.mlflow import MlflowResource, share_tracker
from modyn_dagster.settings import Settings

pytestmark = pytest.mark.process

SECRET = "s3cret"
NOBODY = TrackerAddress(f"http://somebody:{SECRET}@127.0.0.1:1", "http://127.0.0.1:5000", None)


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


@pytest.mark.soak("screens")
def test_every_question_fails_where_mlflow_does_not_answer_and_the_process_ends_with_its_owner(tmp_path: Path) -> None:
    before = children()
    with TrackerProcess(Settings(tmp_path, tmp_path), NOBODY) as tracker:
        [started] = children() - before
        assert SECRET not in " ".join(psutil.Process(started).cmdline())
        for _ in range(2):
            with pytest.raises(TrackingError, match=r"127\.0\.0\.1:1: .*refused") as caught:
                tracker.sync_run(1, "run", None)
            assert SECRET not in str(caught.value)
    assert not psutil.pid_exists(started)


def test_a_server_that_accepts_and_never_answers_ends_the_process_in_time(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        address = TrackerAddress(f"http://somebody:{SECRET}@{where}", "http://127.0.0.1:5000", None)
        with TrackerProcess(Settings(tmp_path, tmp_path, mlflow_timeout=0.5), address) as tracker:
            with pytest.raises(TrackingSilence, match=rf"{where}: no answer within 0\.5 s") as caught:
                tracker.sync_triggers(1, [1, 2], "run", None)
            assert not tracker.is_alive
            assert SECRET not in str(caught.value)


def test_a_process_that_is_gone_is_an_error_that_the_next_sync_makes_up_for(tmp_path: Path) -> None:
    before = children()
    with TrackerProcess(Settings(tmp_path, tmp_path), NOBODY) as tracker:
        [started] = children() - before
        os.kill(started, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(TrackingError, match="the next sync adds what is missing"):
                tracker.sync_triggers(1, [1, 2], "run", None)
    assert not psutil.pid_exists(started)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, TimeoutError])
def test_an_interrupted_question_ends_the_process_so_that_no_other_run_gets_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]
) -> None:
    def interrupt(*_: object) -> None:
        raise raised

    with socket.socket() as silent, ExitStack() as stack:
        stack.callback(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, interrupt))
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("MODYN_HOME", str(tmp_path))
        monkeypatch.setenv("MODYN_MLFLOW_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with share_tracker(Settings(tmp_path, tmp_path)):
            tracker = MlflowResource().shared_process()
            assert tracker is not None
            signalling = Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
            signalling.start()
            with pytest.raises(TrackingError if issubclass(raised, OSError) else raised):
                tracker.sync_run(1, "run", None)
            signalling.join()
            assert not tracker.is_alive
            assert MlflowResource().shared_process() is None


@pytest.mark.soak("screens")
def test_runs_that_share_a_tracker_have_one_process_which_ends_with_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODYN_HOME", str(tmp_path))
    monkeypatch.setenv("MODYN_MLFLOW_URI", NOBODY.uri)
    settings, before = Settings(tmp_path, tmp_path), children()
    resource, another = MlflowResource(), MlflowResource(tracking_uri="http://127.0.0.1:2")
    assert resource.shared_process() is None
    with share_tracker(settings):
        [started] = children() - before
        for _ in range(2):
            with resource.process(settings) as process:
                assert process is resource.shared_process() is not None
            assert children() - before == {started}
        with another.process(settings) as own:
            assert own is not process
            assert len(children() - before) == 2
        os.kill(started, signal.SIGKILL)
        psutil.Process(started).wait()
        with resource.process(settings) as successor:
            assert successor is not process
    assert children() - before == set()
    assert resource.shared_process() is None
