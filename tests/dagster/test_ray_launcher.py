"""The launcher that routes runs: quoting, classes, secrets and clocks. No cluster is needed; ``tests/cluster`` has one."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import dagster as dg
import pytest
import yaml

# What the daemon gives a launcher; there are no public names for it.
from dagster._core.code_pointer import FileCodePointer
from dagster._core.errors import DagsterInvalidConfigError
from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin
from dagster._serdes import ConfigurableClassData

from modyn_dagster.errors import ConfigError, MissingExtra
from modyn_dagster.resources.ray_launcher import RAY_TAG, RoutingRunLauncher
from modyn_dagster.resources.run_classes import CLASS_TAG, RESOURCES_TAG, RUN_CLASSES
from tests.dagster import warm_jobs
from tests.projects.tiny import ROOT

JOBS: Final = Path(warm_jobs.__file__)
#: Nobody listens there.
NOWHERE: Final = "http://127.0.0.1:9"


@contextmanager
def opened(folder: Path, ray: Mapping[str, Any] | None, **content: Any) -> Iterator[dg.DagsterInstance]:
    """Dagster's instance with this launcher."""
    config = {"warm": False} | ({"ray": dict(ray)} if ray is not None else {})
    launcher = {"module": "modyn_dagster.resources.ray_launcher", "class": "RoutingRunLauncher", "config": config}
    monitoring = {"enabled": True, "start_timeout_seconds": 1_000}
    settings = {"telemetry": {"enabled": False}, "run_launcher": launcher, "run_monitoring": monitoring, **content}
    folder.mkdir(exist_ok=True)
    (folder / "dagster.yaml").write_text(yaml.safe_dump(settings))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", str(folder))
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", "0" * 32)
        with dg.DagsterInstance.get() as instance:
            yield instance


def launcher_of(instance: dg.DagsterInstance) -> RoutingRunLauncher:
    launcher = instance.run_launcher
    assert isinstance(launcher, RoutingRunLauncher)
    return launcher


def created(instance: dg.DagsterInstance, tags: Mapping[str, str] | None = None) -> dg.DagsterRun:
    pointer = FileCodePointer(str(JOBS), "defs", str(ROOT))
    return instance.create_run_for_job(
        warm_jobs.defs.resolve_job_def("telling"),
        run_config={"ops": {"tell": {"config": {"file": 'it\'s "here" $HOME'}}}},
        tags=dict(tags or {}),
        status=dg.DagsterRunStatus.STARTED,
        job_code_origin=JobPythonOrigin("telling", RepositoryPythonOrigin(sys.executable, pointer)),
    )


def command_of(instance: dg.DagsterInstance) -> str:
    jobs = launcher_of(instance).ray
    assert jobs is not None
    return jobs.command(created(instance))


@pytest.mark.soak("ray")
def test_a_shell_gives_the_program_what_the_launcher_wrote(tmp_path: Path) -> None:
    shown = tmp_path / "shown.py"
    shown.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    shown.chmod(0o755)
    logs = {
        "module": "dagster._core.storage.local_compute_log_manager",
        "class": "LocalComputeLogManager",
        "config": {"base_dir": str(tmp_path / 'it\'s `a` "$HOME"; folder')},
    }
    with opened(tmp_path / "home", {"address": NOWHERE, "python": str(shown)}, compute_logs=logs) as instance:
        command = command_of(instance)
        expected = json.loads(dg.serialize_value(instance.get_ref()))
    answer = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)  # noqa: S602 - as Ray does
    *words, content = json.loads(answer.stdout)
    assert words == ["-m", "dagster", "api", "execute_run"]
    arguments = json.loads(content)
    assert arguments["instance_ref"] == expected
    assert arguments["set_exit_code_on_failure"] is True
    # YAML breaks long lines at spaces.
    assert "`a`" in content


@pytest.mark.parametrize(
    ("set_here", "chosen", "found"),
    [
        ({"OMP_NUM_THREADS": "3"}, [], "3 3"),
        ({"OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "2"}, [], "3 2"),
        # As many threads of BLAS as this machine has cores, as BLAS has them here.
        ({}, [], f" {len(os.sched_getaffinity(0))}"),
        ({"OPENBLAS_NUM_THREADS": "2"}, ["OMP_NUM_THREADS=5", "OPENBLAS_NUM_THREADS=4"], "64 64"),
    ],
)
def test_a_run_finds_the_threads_of_the_launcher_and_not_those_of_ray_unless_they_are_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_here: Mapping[str, str], chosen: list[str], found: str
) -> None:
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    for name, value in set_here.items():
        monkeypatch.setenv(name, value)
    shown = tmp_path / "shown.sh"
    shown.write_text('#!/bin/sh\nprintf "%s %s" "$OMP_NUM_THREADS" "$OPENBLAS_NUM_THREADS"\n')
    shown.chmod(0o755)
    with opened(tmp_path / "home", {"address": NOWHERE, "python": str(shown), "env_vars": chosen}) as instance:
        command = ["sh", "-c", command_of(instance)]
    # Those of the node; Ray would put chosen ones in their place.
    environment = {**dict.fromkeys(names, "64"), "PATH": "/usr/bin:/bin"}
    assert subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout == found


def test_a_password_in_the_settings_is_refused_before_ray_shows_it(tmp_path: Path) -> None:
    logs = {
        "module": "dagster._core.storage.local_compute_log_manager",
        "class": "LocalComputeLogManager",
        "config": {"base_dir": f"{tmp_path}/postgresql://me:hunter2@host"},
    }
    with opened(tmp_path / "home", {"address": NOWHERE}, compute_logs=logs) as instance, pytest.raises(ConfigError) as caught:
        command_of(instance)
    assert "base_dir: is a secret, which Ray would show" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("ray", "words"),
    [
        ({"address": "ray://127.0.0.1:10001"}, "must be the address of the dashboard"),
        ({"address": "http://me:hunter2@127.0.0.1:8265"}, "must be the address of the dashboard"),
        ({"stop_seconds": 0}, "run_launcher.config.ray.stop_seconds"),
        ({"env_vars": ["DB_PASSWORD=hunter2"]}, "looks like a secret"),
        ({"env_vars": ["URL=postgresql://me:hunter2@host/db"]}, "looks like a secret"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_in_words(ray: Mapping[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        made({"address": NOWHERE, **ray})
    assert words in str(caught.value)
    assert "hunter2" not in str(caught.value)


def made(ray: Mapping[str, Any]) -> RoutingRunLauncher:
    """Launcher as an instance makes it from its `dagster.yaml`."""
    data = ConfigurableClassData(RoutingRunLauncher.__module__, "RoutingRunLauncher", yaml.safe_dump({"ray": dict(ray)}))
    launcher = data.rehydrate(RoutingRunLauncher)
    assert isinstance(launcher, RoutingRunLauncher)
    return launcher


@pytest.mark.soak("ray")
def test_a_run_that_may_wait_for_longer_than_dagster_does_is_refused(tmp_path: Path) -> None:
    refused = pytest.raises(ConfigError, match=r"run_monitoring\.start_timeout_seconds: must be above .*, 1000")
    with opened(tmp_path / "home", {"address": NOWHERE, "start_seconds": 1_000}) as instance, refused:
        launcher_of(instance)


@pytest.mark.parametrize("ray", [{"address": NOWHERE, "classes": ["replays"]}, {"address": NOWHERE, "adress": ""}, {}])
def test_settings_with_unknown_names_are_refused_by_dagster(ray: Mapping[str, Any]) -> None:
    with pytest.raises(DagsterInvalidConfigError):
        made(ray)


def test_without_the_block_nothing_needs_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("ray", "dagster_ray", "ray.job_submission"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "modyn_dagster.resources.ray_jobs", raising=False)
    with opened(tmp_path / "home", None) as instance:
        assert launcher_of(instance).ray is None
    missing = pytest.raises(MissingExtra, match=r"pip install 'modyn-dagster\[ray\]'")
    with opened(tmp_path / "home", {"address": NOWHERE}) as instance, missing:
        launcher_of(instance)


@pytest.mark.parametrize(("classes", "there"), [(None, {"replay"}), (["training", "measuring"], {"training", "measuring"})])
def test_replays_go_to_the_cluster_and_other_classes_stay_unless_named(
    tmp_path: Path, classes: list[str] | None, there: set[str]
) -> None:
    ray = {"address": NOWHERE} | ({"classes": classes} if classes else {})
    with opened(tmp_path / "home", ray) as instance:
        for name in RUN_CLASSES:
            run = created(instance, {CLASS_TAG: name})
            # Nobody answers there, and the launcher of this machine wants a workspace.
            with pytest.raises(Exception) as caught:
                launcher_of(instance).launch_run(dg_context(run))
            found = instance.get_run_by_id(run.run_id)
            assert found is not None
            assert isinstance(caught.value, ConnectionError) is (RAY_TAG in found.tags) is (name in there), name


def dg_context(run: dg.DagsterRun) -> Any:
    from dagster._core.launcher import LaunchRunContext

    return LaunchRunContext(dagster_run=run, workspace=None)


def test_a_cluster_without_a_token_is_refused_unless_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for token, error in ((True, ConfigError), (False, ConnectionError)):
        with opened(tmp_path / "home", {"address": NOWHERE, "token": token}) as instance:
            monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
            with pytest.raises(error):
                launcher_of(instance).launch_run(dg_context(created(instance, {CLASS_TAG: "replay"})))


@pytest.mark.soak("ray")
def test_a_head_that_is_away_loses_runs_after_a_while_only(tmp_path: Path) -> None:
    for seconds, status in ((300, "RUNNING"), (1, "FAILED")):
        with opened(tmp_path / "home", {"address": NOWHERE, "lost_seconds": seconds}) as instance:
            launcher = launcher_of(instance)
            run = created(instance, {RAY_TAG: NOWHERE})
            health = launcher.check_run_worker_health(run)
            assert health.status.value == "RUNNING"
            assert "does not answer" in health.msg
            while (found := launcher.check_run_worker_health(run).status.value) != status:
                assert found == "RUNNING"


@contextmanager
def answering(stop: int, job: int, text: str = "no", port: int = 0) -> Iterator[str]:
    """Address of a server that answers requests to end a job, and for its state, with these statuses of HTTP."""

    class Head(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_version = self.path == "/api/version"
            self._answer(200 if is_version else job, {"ray_version": "2.60.0"} if is_version else text)

        def do_POST(self) -> None:
            self._answer(stop, {"stopped": True} if stop == 200 else text)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing to say."""

        def _answer(self, status: int, answer: Any) -> None:
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with ThreadingHTTPServer(("127.0.0.1", port), Head) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def ended(folder: Path, address: str, lost_seconds: int = 300) -> tuple[bool, str, str]:
    """End a run: whether its end is seen to, the run's status when nobody looks at it any more, and its events."""
    with opened(folder, {"address": address, "stop_seconds": 1, "lost_seconds": lost_seconds}) as instance:
        run = created(instance, {RAY_TAG: address})
        took = launcher_of(instance).terminate(run.run_id)
        for thread in [each for each in threading.enumerate() if each.name == f"end of run {run.run_id}"]:
            thread.join()
        found = instance.get_run_by_id(run.run_id)
        assert found is not None
        return took, found.status.value, " ".join(str(event.message) for event in instance.all_logs(run.run_id))


@pytest.mark.soak("ray")
@pytest.mark.parametrize(("status", "words"), [(401, "Authentication required"), (500, "status code 500")])
def test_a_run_that_the_head_refuses_to_end_is_not_reported_as_canceled(tmp_path: Path, status: int, words: str) -> None:
    with answering(stop=status, job=status) as address:
        took, state, events = ended(tmp_path / "home", address)
    assert (took, state) == (False, "CANCELING")
    assert words in events


@pytest.mark.soak("screens")
def test_a_run_of_which_the_head_says_nothing_is_not_reported_as_canceled(tmp_path: Path) -> None:
    with answering(stop=200, job=500) as address:
        took, state, events = ended(tmp_path / "home", address)
    assert (took, state) == (True, "CANCELING")
    assert "nobody has said that it did" in events


def test_a_run_that_the_head_does_not_know_is_canceled(tmp_path: Path) -> None:
    with answering(stop=404, job=404, text="the job does not exist") as address:
        assert ended(tmp_path / "home", address)[:2] == (True, "CANCELED")


@contextmanager
def silent() -> Iterator[str]:
    """Address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.soak("screens")
@pytest.mark.parametrize("head", [silent, lambda: nullcontext(NOWHERE)], ids=["hangs", "is away"])
def test_a_run_whose_head_is_silent_ends_as_canceled_and_says_why(
    tmp_path: Path, head: Callable[[], AbstractContextManager[str]]
) -> None:
    with head() as address:
        took, state, events = ended(tmp_path / "home", address, lost_seconds=1)
    assert (took, state) == (True, "CANCELED")
    assert "the head of the cluster does not answer" in events
    assert "s: the run counts as lost, and its next one goes on" in events


@pytest.mark.soak("screens")
def test_a_head_that_hangs_holds_up_no_look_at_a_run(tmp_path: Path) -> None:
    with silent() as address, opened(tmp_path / "home", {"address": address, "lost_seconds": 1}) as instance:
        launcher, run = launcher_of(instance), created(instance, {RAY_TAG: address})
        assert "does not answer" in launcher.check_run_worker_health(run).msg
        assert launcher.check_run_worker_health(run).status.value == "FAILED"
        with pytest.raises(OSError, match="timed out"):
            launcher.launch_run(dg_context(created(instance, {CLASS_TAG: "replay"})))


@pytest.mark.soak("ray")
def test_a_head_that_comes_back_is_asked_once_more(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with opened(tmp_path / "home", {"address": f"http://127.0.0.1:{port}", "stop_seconds": 1}) as instance:
        run = created(instance, {RAY_TAG: NOWHERE})
        assert launcher_of(instance).terminate(run.run_id)
        with answering(stop=404, job=404, text="the job does not exist", port=port):
            for thread in [each for each in threading.enumerate() if each.name == f"end of run {run.run_id}"]:
                thread.join()
        found = instance.get_run_by_id(run.run_id)
        assert found is not None
        assert found.status.value == "CANCELED"


def test_a_run_that_is_not_on_the_cluster_is_looked_after_here(tmp_path: Path) -> None:
    with opened(tmp_path / "home", {"address": NOWHERE}) as instance:
        health = launcher_of(instance).check_run_worker_health(created(instance))
        assert (health.status.value, health.msg) == ("RUNNING", None)


@pytest.mark.soak("ray")
def test_a_tag_that_names_no_resources_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "home", {"address": NOWHERE}) as instance:
        run = created(instance, {CLASS_TAG: "replay", RESOURCES_TAG: '{"cores": 3}'})
        with pytest.raises(ConfigError, match="must be a JSON object with cpus, gpus and memory"):
            launcher_of(instance).launch_run(dg_context(run))
