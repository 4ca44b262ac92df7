"""Runs from a warm process: executed like any other, ended like any other, and started anew where there is none."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import dagster as dg
import psutil
import pytest

# What the daemon gives a launcher; there are no public names for it.
from dagster._core.code_pointer import FileCodePointer
from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin
from dagster._core.remote_origin import (
    GrpcServerCodeLocationOrigin,
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from modyn_dagster.resources.run_launcher import WatchingRunLauncher
from modyn_dagster.resources.warm.client import WarmProcess
from modyn_dagster.resources.warm.imported_code import ImportedCode
from tests.dagster import warm_jobs
from tests.projects.tiny import ROOT

JOBS: Final = Path(warm_jobs.__file__)
#: Importing everything takes seconds, on a busy machine many.
_SECONDS: Final = 180.0
_SETTINGS: Final = """
telemetry: {enabled: false}
run_launcher:
  module: modyn_dagster.resources.run_launcher
  class: WatchingRunLauncher
  config: {kill_after_seconds: 60, warm: true}
"""
_OWN = ManagedGrpcPythonEnvCodeLocationOrigin(LoadableTargetOrigin(python_file=str(JOBS)))


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    """Dagster's instance on disk, as a daemon has it; its warm process is one for the module, replaced where a test ends it."""
    folder = tmp_path_factory.mktemp("dagster")
    (folder / "dagster.yaml").write_text(_SETTINGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", str(folder))
        with dg.DagsterInstance.get() as instance:
            yield instance


def wait_for(event: str, look: Callable[[], Any]) -> Any:
    end = time.monotonic() + _SECONDS
    while not (found := look()):
        assert time.monotonic() < end, event
        time.sleep(0.05)
    return found


def zygotes() -> list[psutil.Process]:
    """Warm processes of this one, without those that they forked."""
    children = psutil.Process().children()
    return [child for child in children if "modyn_dagster.resources.warm.zygote" in child.cmdline()]


def warm(instance: dg.DagsterInstance) -> psutil.Process:
    """The warm process, once there is one that is ready."""
    launcher = instance.run_launcher
    assert isinstance(launcher, WatchingRunLauncher)
    wait_for("a warm process", launcher.is_warm)
    [zygote] = zygotes()
    return zygote


def is_warm_again(instance: dg.DagsterInstance, ended: psutil.Process) -> bool:
    launcher = instance.run_launcher
    assert isinstance(launcher, WatchingRunLauncher)
    return launcher.is_warm() and ended.pid not in [zygote.pid for zygote in zygotes()]


def created(instance: dg.DagsterInstance, job: str, file: Path, location: Any = _OWN) -> str:
    pointer = FileCodePointer(str(JOBS), "defs", str(ROOT))
    return instance.create_run_for_job(
        warm_jobs.defs.resolve_job_def(job),
        run_config={"ops": {{"telling": "tell", "hanging": "hang"}[job]: {"config": {"file": str(file)}}}},
        status=dg.DagsterRunStatus.NOT_STARTED,
        remote_job_origin=RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), job),
        job_code_origin=JobPythonOrigin(job, RepositoryPythonOrigin(sys.executable, pointer)),
    ).run_id


def launch(instance: dg.DagsterInstance, job: str, file: Path) -> str:
    """Launch a run; without a workspace only a warm process can execute it."""
    run_id = created(instance, job, file)
    instance.launch_run(run_id, workspace=None)  # type: ignore[arg-type]  # a warm start needs none
    return run_id


def status(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRunStatus:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run.status


def ended(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRunStatus:
    wait_for("the end of the run", lambda: status(instance, run_id) in _OVER)
    return status(instance, run_id)


_OVER = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


def hanging(instance: dg.DagsterInstance, file: Path) -> tuple[str, int]:
    """A run that hangs, and the number of its process."""
    run_id = launch(instance, "hanging", file)
    return run_id, int(wait_for("the op", lambda: file.exists() and file.read_text()))


@pytest.mark.soak("screens")
def test_a_warm_run_finds_what_a_process_that_was_started_anew_finds(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    zygote = warm(instance)
    run_id = launch(instance, "telling", tmp_path / "told")
    assert ended(instance, run_id) == dg.DagsterRunStatus.SUCCESS
    told = json.loads((tmp_path / "told").read_text())
    program = "import json; from tests.dagster.warm_jobs import facts; print(json.dumps(facts()))"
    anew = json.loads(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)
    assert {name: told[name] for name in anew} == anew
    assert told["had_torch"]
    assert told["main"] == "MainThread"
    assert (told["parent"], told["definitions"]) == (zygote.pid, told["pid"]), "definitions are read in the run's own process"
    [captured] = instance.all_logs(run_id, of_type=dg.DagsterEventType.LOGS_CAPTURED)
    key = [run_id, "compute_logs", captured.get_dagster_event().logs_captured_data.file_key]
    assert "told to standard output" in str(instance.compute_log_manager.get_log_data(key).stdout)


@pytest.mark.soak("production")
def test_a_killed_run_is_reported_at_once_and_a_cancelled_one_ends(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    warm(instance)
    run_id, process = hanging(instance, tmp_path / "first")
    os.kill(process, signal.SIGKILL)
    assert ended(instance, run_id) == dg.DagsterRunStatus.FAILURE
    assert any("exit code -9" in entry.message for entry in instance.all_logs(run_id))
    run_id, process = hanging(instance, tmp_path / "second")
    assert instance.run_launcher.terminate(run_id)
    assert ended(instance, run_id) == dg.DagsterRunStatus.CANCELED
    wait_for("its process to be gone", lambda: not psutil.pid_exists(process))


@pytest.mark.soak("kills-daemons")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_outlives_the_warm_process_which_is_replaced(
    instance: dg.DagsterInstance, tmp_path: Path, end: signal.Signals
) -> None:
    first = warm(instance)
    run_id, process = hanging(instance, tmp_path / "run")
    first.send_signal(end)
    first.wait()
    with pytest.raises(dg.DagsterError, match="workspace"):
        launch(instance, "telling", tmp_path / "cold")
    wait_for("another warm process", lambda: is_warm_again(instance, first))
    assert psutil.pid_exists(process)
    run = instance.get_run_by_id(run_id)
    assert run is not None
    assert run.status == dg.DagsterRunStatus.STARTED
    assert instance.run_launcher.check_run_worker_health(run).status.value == "RUNNING"
    assert instance.run_launcher.terminate(run_id)
    assert ended(instance, run_id) == dg.DagsterRunStatus.CANCELED
    second = launch(instance, "telling", tmp_path / "told")
    assert ended(instance, second) == dg.DagsterRunStatus.SUCCESS


@pytest.mark.soak("production")
def test_runs_of_code_servers_that_others_started_and_all_where_it_is_off_are_started_anew(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm(instance)
    other = GrpcServerCodeLocationOrigin(host="localhost", port=1)
    with pytest.raises(dg.DagsterError, match="workspace"):
        instance.launch_run(created(instance, "telling", tmp_path / "told", other), workspace=None)  # type: ignore[arg-type]
    monkeypatch.setattr(instance.run_launcher, "warm", False)
    with pytest.raises(dg.DagsterError, match="workspace"):
        launch(instance, "telling", tmp_path / "told")
    assert not (tmp_path / "told").exists()


@pytest.mark.soak("production")
def test_a_warm_process_of_another_environment_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {zygote.pid for zygote in zygotes()}
    process = WarmProcess(lambda *_: None)
    try:
        assert not process.is_ready()
        [first] = [zygote for zygote in zygotes() if zygote.pid not in before]
        monkeypatch.setenv("MODYN_OTHER", "environment")
        assert not process.is_ready()
        [second] = [zygote for zygote in zygotes() if zygote.pid not in before]
        assert second.pid != first.pid
        assert not psutil.pid_exists(first.pid)
    finally:
        process.close()
    assert not psutil.pid_exists(second.pid)


def test_a_file_that_changed_after_its_import_is_found_and_so_is_one_that_changed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "imported_early.py").write_text("value = 1\n")
    importlib.import_module("imported_early")
    code = ImportedCode()
    code.note()
    assert code.changed() is None
    (tmp_path / "imported_early.py").write_text("value = 22\n")
    assert code.changed() == str(tmp_path / "imported_early.py")
    code = ImportedCode()
    (tmp_path / "imported_late.py").write_text("value = 3\n")
    importlib.import_module("imported_late")
    code.note()
    assert code.changed() == str(tmp_path / "imported_late.py")


@pytest.mark.soak("kills-daemons")
def test_a_warm_process_ends_with_the_one_that_started_it() -> None:
    program = """
import time
from modyn_dagster.resources.warm.client import WarmProcess
process = WarmProcess(lambda *_: None)
while not process.is_ready():
    time.sleep(0.1)
print(flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        [zygote] = psutil.Process(owner.pid).children()
        owner.kill()
    zygote.wait(timeout=_SECONDS)


@pytest.mark.soak("kills-daemons")
def test_a_process_whose_imports_start_a_thread_is_never_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    thread = "threading.Thread(target=time.sleep, args=(600,), name='imported', daemon=True)"
    (tmp_path / "sitecustomize.py").write_text(f"import threading, time\n{thread}.start()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    # Those of the instance, if an earlier test has left one.
    others = zygotes()
    process = WarmProcess(lambda *_: None)
    assert not process.is_ready()
    wait_for("its refusal", lambda: "started threads: imported" in caplog.text)
    wait_for("its end", lambda: not process.is_ready() and set(zygotes()) <= set(others))
    process.close()
