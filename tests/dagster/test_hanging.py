"""Runs that hang, or die with everybody who could report it: noticed, ended, and their triggers trained once by the next attempt.

What Dagster's daemon does every few seconds is done here by hand, with the shipped `dagster.yaml` and processes that are real.
"""

import json
import logging
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import dagster as dg
import psutil
import pytest
import yaml

# What the daemon calls and is made of; there are no public names for it.
from dagster._core.events import EngineEventData
from dagster._core.instance.types import InstanceType
from dagster._core.launcher import DefaultRunLauncher, WorkerStatus
from dagster._core.run_coordinator import DefaultRunCoordinator
from dagster._core.storage.event_log import InMemoryEventLogStorage
from dagster._core.storage.noop_compute_log_manager import NoOpComputeLogManager
from dagster._core.storage.root import LocalArtifactStorage
from dagster._core.storage.runs import InMemoryRunStorage
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._core.workspace.load import location_origins_from_yaml_paths
from dagster._daemon.monitoring.run_monitoring import monitor_started_run
from dagster._serdes import ConfigurableClassData

from modyn_dagster.cli.dagster_runs import ReplayOptions, replay_range
from modyn_dagster.resources.code_location import location_name, runs_of_location
from modyn_dagster.resources.run_launcher import PROCESS_TAG, WatchingRunLauncher, end_killed_runs
from modyn_dagster.spec.load import spec_hash
from tests.dagster.face import Face
from tests.dagster.test_production import TRIGGERING, take_in, triggers
from tests.projects.tiny import ROOT, amount, write_pipeline

LOG: Final = logging.getLogger("monitoring")
_WAITS: Final = "print(flush=True); import time; time.sleep(600)"
#: Ends when it is asked to, as a run that Dagster interrupts does; says when it is ready to be asked. It sees to that itself: a
#: shell ignores SIGINT for jobs in the background, Dagster then ignores SIGTERM as well, and its children inherit that.
LISTENS: Final = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_DFL); {_WAITS}"
#: Hangs where no signal reaches it.
DEAF: Final = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {_WAITS}"

GONE: Final = {GRPC_INFO_TAG: json.dumps({"host": "localhost", "socket": "/nowhere/code-server"})}


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """Dagster's instance in memory with the launcher of the shipped settings, but that what does not listen is killed at once."""
    with dg.DagsterInstance(
        instance_type=InstanceType.EPHEMERAL,
        local_artifact_storage=LocalArtifactStorage(str(tmp_path)),
        run_storage=InMemoryRunStorage(),
        event_storage=InMemoryEventLogStorage(),
        compute_log_manager=NoOpComputeLogManager(),
        run_coordinator=DefaultRunCoordinator(),
        run_launcher=WatchingRunLauncher(kill_after_seconds=0),
    ) as instance:
        yield instance


@pytest.fixture
def processes() -> Iterator[list["subprocess.Popen[str]"]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def asked_for(face: Face) -> dg.DagsterRun:
    """The run that the sensor asks for."""
    [request] = face.tick(TRIGGERING).requests
    assert request.job_name is not None
    return made(face, request.job_name, {**request.tags, "dagster/partition": str(request.partition_key)})


def made(face: Face, job_name: str, tags: Mapping[str, str]) -> dg.DagsterRun:
    """A run whose code server is gone."""
    job = face.defs.resolve_job_def(job_name)
    return face.instance.create_run_for_job(job, tags={**job.run_tags, **tags, **GONE}, status=dg.DagsterRunStatus.STARTING)


def begin(face: Face, run: dg.DagsterRun, code: str, processes: list["subprocess.Popen[str]"]) -> psutil.Process:
    """Let a process work on a run."""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    processes.append(process)
    assert process.stdout is not None
    process.stdout.readline()
    face.instance.report_engine_event("Started process for run.", run, EngineEventData.in_process(process.pid))
    face.instance.report_dagster_event(dg.DagsterEvent(dg.DagsterEventType.RUN_START.value, run.job_name), run.run_id)
    return psutil.Process(process.pid)


def look_after(face: Face, run: dg.DagsterRun, hours: float = 0.0) -> dg.DagsterRunStatus:
    """One round of Dagster's run monitoring ``hours`` after the run began; the run's status then."""
    record = face.instance.get_run_record_by_id(run.run_id)
    assert record is not None
    assert record.start_time is not None
    with pytest.MonkeyPatch.context() as patch:
        moment = record.start_time + 3600 * hours + 1
        patch.setattr("dagster._daemon.monitoring.run_monitoring.get_current_timestamp", lambda: moment)
        monitor_started_run(face.instance, None, record, LOG)  # type: ignore[arg-type]  # this check needs no workspace
    now = face.instance.get_run_by_id(run.run_id)
    assert now is not None
    return now.status


def trained_once_by_the_next_attempt(face: Face) -> bool:
    [request] = face.tick(TRIGGERING).requests
    assert request.tags["modyn/attempt"] == "2"
    assert face.launch(request).success
    models = face.materializations("by_amount", "model")
    return [(row.state, row.attempt) for row in triggers(face)] == [("trained", 2), ("trained", 1)] and len(models) == 2


@pytest.mark.soak("screens")
def test_a_run_that_died_with_its_code_server_is_over_and_its_trigger_is_trained_by_the_next(
    face: Face, days: list[str], processes: list["subprocess.Popen[str]"]
) -> None:
    take_in(face)
    run = asked_for(face)
    process = begin(face, run, LISTENS, processes)
    assert look_after(face, run) == dg.DagsterRunStatus.STARTED
    assert face.tick(TRIGGERING).requests == [], "its process lives"
    process.kill()
    process.wait()
    assert look_after(face, run) == dg.DagsterRunStatus.FAILURE
    assert trained_once_by_the_next_attempt(face)


@pytest.mark.soak("screens")
def test_a_training_that_hangs_longer_than_its_pipeline_allows_is_ended_and_its_trigger_is_trained_by_the_next(
    face: Face, days: list[str], processes: list["subprocess.Popen[str]"]
) -> None:
    write_pipeline(face.settings.project, amount(every=60, max_run_time="2h"))
    take_in(face)
    run = asked_for(face)
    process = begin(face, run, DEAF, processes)
    assert look_after(face, run, hours=1.9) == dg.DagsterRunStatus.STARTED
    assert process.is_running()
    assert look_after(face, run, hours=2.1) == dg.DagsterRunStatus.FAILURE
    process.wait(timeout=60)
    assert trained_once_by_the_next_attempt(face)


@pytest.mark.parametrize(("code", "patience", "end"), [(LISTENS, 60, signal.SIGTERM), (DEAF, 0, signal.SIGKILL)])
def test_a_run_that_was_cancelled_ends_though_its_code_server_is_gone(
    face: Face, processes: list["subprocess.Popen[str]"], code: str, patience: int, end: signal.Signals
) -> None:
    launcher = face.instance.run_launcher
    assert isinstance(launcher, WatchingRunLauncher)
    launcher.kill_after_seconds = patience
    run = made(face, "retention", {})
    begin(face, run, code, processes)
    assert face.instance.run_coordinator.cancel_run(run.run_id)
    # Sooner than what listens would be killed. 0 where the launcher, here in its parent, was told of its end first.
    assert processes[0].wait(timeout=50) in (-end, 0)
    never_began = made(face, "retention", {})
    with pytest.raises(dg.DagsterError, match="code server"):
        face.instance.run_coordinator.cancel_run(never_began.run_id)


def test_code_servers_elsewhere_are_asked_for_their_runs_only_where_the_settings_say_so(face: Face) -> None:
    launcher = face.instance.run_launcher
    assert isinstance(launcher, WatchingRunLauncher)
    assert launcher.ask_code_server is False, "as shipped"


def test_a_process_that_got_the_number_of_a_dead_one_is_not_taken_for_it(
    face: Face, processes: list["subprocess.Popen[str]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = made(face, "retention", {})
    process = begin(face, run, LISTENS, processes)
    later = process.create_time() + 3600
    monkeypatch.setattr(psutil.Process, "create_time", lambda _: later)
    assert look_after(face, run) == dg.DagsterRunStatus.FAILURE
    assert process.is_running(), "nobody's business"


def test_what_runs_elsewhere_or_has_not_begun_is_left_to_those_who_started_it(face: Face) -> None:
    for place in ({GRPC_INFO_TAG: json.dumps({"host": "another", "port": 4000})}, {GRPC_INFO_TAG: "{}"}):
        run = made(face, "retention", {})
        face.instance.add_run_tags(run.run_id, place)
        moved = face.instance.get_run_by_id(run.run_id)
        assert moved is not None
        face.instance.report_engine_event("Started process for run.", run, EngineEventData.in_process(2**22 + 1))
        assert face.instance.run_launcher.check_run_worker_health(moved).status == WorkerStatus.RUNNING
    waiting = made(face, "retention", {})
    assert face.instance.run_launcher.check_run_worker_health(waiting).status == WorkerStatus.RUNNING


@pytest.mark.soak("screens")
def test_a_run_of_a_command_is_in_the_timeline_and_ends_with_it(face: Face, ingested: list[str], tmp_path: Path) -> None:
    with runs_of_location(face.instance, tmp_path / "workspace.yaml"):
        replay_range(face.defs, face.instance, "by_amount", (ingested[0], ingested[-1]), ReplayOptions())
    [record, *_] = face.instance.get_run_records()
    # Dagster's timeline shows runs with a code location and a start, until they end.
    run = record.dagster_run
    assert run.remote_job_origin is not None
    assert run.remote_job_origin.location_name == "modyn_dagster.definitions"
    assert (run.status, run.job_name) == (dg.DagsterRunStatus.SUCCESS, run.remote_job_origin.job_name)
    assert None not in (record.start_time, record.end_time)
    assert face.instance.create_run_for_job(face.defs.resolve_job_def("retention")).remote_job_origin is None


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ("python_module: modyn_dagster.definitions", "modyn_dagster.definitions"),
        ("python_file: {relative_path: code/ours.py, location_name: ours}", "ours"),
        ("python_file: code/ours.py", "ours.py"),
        ("python_module: theirs\n  - python_module: {module_name: modyn_dagster.definitions, location_name: ours}", "ours"),
    ],
)
def test_the_location_of_a_command_is_the_one_that_dagster_loads(tmp_path: Path, entry: str, name: str) -> None:
    workspace = tmp_path / "workspace.yaml"
    workspace.write_text(f"load_from:\n  - {entry}\n")
    assert location_name(workspace) == name
    # Dagster's own name for it.
    assert name in [origin.location_name for origin in location_origins_from_yaml_paths([str(workspace)])]


def test_a_run_of_a_command_that_was_killed_is_over_for_the_daemon_and_for_the_next_command(
    face: Face, processes: list["subprocess.Popen[str]"]
) -> None:
    processes.append(subprocess.Popen([sys.executable, "-c", LISTENS], stdout=subprocess.PIPE, text=True))
    tag = {PROCESS_TAG: f"{socket.gethostname()}:{processes[0].pid}"}
    job = face.defs.resolve_job_def("retention")
    runs = [face.instance.create_run_for_job(job, tags=tag, status=dg.DagsterRunStatus.STARTING) for _ in range(2)]
    elsewhere = face.instance.create_run_for_job(job, tags={PROCESS_TAG: "another:1"})
    for run in runs:
        face.instance.report_dagster_event(dg.DagsterEvent(dg.DagsterEventType.RUN_START.value, job.name), run.run_id)
    assert look_after(face, runs[0]) == dg.DagsterRunStatus.STARTED
    assert end_killed_runs(face.instance) == []
    processes[0].kill()
    processes[0].wait()
    assert look_after(face, runs[0]) == dg.DagsterRunStatus.FAILURE
    assert end_killed_runs(face.instance) == [runs[1].run_id]
    left = face.instance.get_run_by_id(elsewhere.run_id)
    assert left is not None
    assert left.status == dg.DagsterRunStatus.NOT_STARTED


def test_what_a_sensor_asks_for_has_a_limit_which_is_no_part_of_what_the_pipeline_does(face: Face) -> None:
    pipeline = face.platform.pipeline("by_amount")
    assert pipeline.max_run_time == "1d"
    for job in ("train__by_amount", "evaluate__by_amount"):
        assert face.defs.resolve_job_def(job).run_tags["dagster/max_runtime"] == "86400"
    assert spec_hash(pipeline.model_copy(update={"max_run_time": "5m"})) == spec_hash(pipeline)


def test_the_shipped_settings_watch_runs() -> None:
    settings = yaml.safe_load((ROOT / "dagster.yaml").read_text())
    assert settings["run_monitoring"]["enabled"]
    named = settings["run_launcher"]
    data = ConfigurableClassData(named["module"], named["class"], yaml.safe_dump(named["config"]))
    launcher = data.rehydrate(DefaultRunLauncher)
    assert isinstance(launcher, WatchingRunLauncher)
    assert (launcher.supports_check_run_worker_health, launcher.kill_after_seconds, launcher.warm) == (True, 60, True)
