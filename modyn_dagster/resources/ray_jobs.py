"""Runs as jobs of a Ray cluster, by dagster-ray: quoted, off the head node, with time to stop, and without secrets.

``ray_launcher`` imports this module where `dagster.yaml` names a cluster; nothing else does, as it needs the extra ``ray``.
"""

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import dagster as dg
import requests
import yaml
from dagster_ray import RayRunLauncher
from ray.exceptions import RayError
from ray.job_submission import JobDetails, JobStatus, JobSubmissionClient

from modyn_dagster.distributed.children import BLAS, blas_threads
from modyn_dagster.distributed.protocols import Resources
from modyn_dagster.distributed.reservation import PLACED
from modyn_dagster.errors import ConfigError, without_secrets
from modyn_dagster.resources.run_classes import RESOURCES_TAG, RunClassName

_FILE: Final = "dagster.yaml"
_FIELD: Final = "run_launcher.config.ray"
#: Resources of a job: dagster-ray's tag.
_JOB_TAG: Final = "dagster-ray/config"
#: Ray gives a job's processes the number of its cores here; a run finds what the launcher has.
_THREADS: Final = "OMP_NUM_THREADS"
_SECRET_NAME: Final = re.compile(r"(password|passwd|secret|token|credential|api_?key|access_?key)", re.IGNORECASE)
_SECRET_VALUE: Final = re.compile(r"://[^/\s@]*:[^/\s@]+@|[?&\s](password|passwd)=\S", re.IGNORECASE)
_TAIL_LINES: Final = 5
#: Longest wait for an answer of the head; Ray's client would wait for ever.
_ANSWER_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class RaySettings:
    """Block ``run_launcher.config.ray`` of `dagster.yaml`.

    Attributes:
        address: of the head's dashboard, ``http://host:8265``.
        classes: classes of runs that go to the cluster.
        python: interpreter on the nodes, with this package; None for the path of the code location's.
        env_vars: ``NAME=value`` for the processes of runs, or ``NAME`` for the launcher's value. No secrets: Ray shows them.
        start_seconds: longest wait of a run for room on the cluster.
        stop_seconds: time between the request to end and the end by force.
        lost_seconds: a head that is away, or does not know a run, for longer has lost it.
        token: refuse a cluster without token authentication.
    """

    address: str
    classes: tuple[RunClassName, ...] = ("replay",)
    python: str | None = None
    env_vars: tuple[str, ...] = ()
    start_seconds: int = 900
    stop_seconds: int = 60
    lost_seconds: int = 300
    token: bool = True

    def __post_init__(self) -> None:
        if not re.fullmatch(r"https?://[^/\s@]+/?", self.address):
            rule = "must be the address of the dashboard, such as http://127.0.0.1:8265, not that of ray://"
            raise ConfigError(_FILE, f"{_FIELD}.address", without_secrets(self.address), rule)
        for name in ("start_seconds", "stop_seconds", "lost_seconds"):
            if getattr(self, name) < 1:
                raise ConfigError(_FILE, f"{_FIELD}.{name}", getattr(self, name), "must be at least 1")
        for entry in self.env_vars:
            name, _, value = entry.partition("=")
            if _SECRET_NAME.search(name) or _SECRET_VALUE.search(value or os.environ.get(name, "")):
                rule = "looks like a secret, and Ray shows the variables of its jobs; set it where `ray start` runs on each node"
                raise ConfigError(_FILE, f"{_FIELD}.env_vars", name, rule)


class HeadSilent(OSError):
    """Head of a cluster that does not answer at all: it is down, hangs, or cannot be reached."""


class UnknownJob(OSError):
    """Job that the head does not know."""


class _BoundedClient(JobSubmissionClient):  # type: ignore[misc]
    """Client of the jobs of a cluster; its requests wait for an answer for so many seconds."""

    def __init__(self, address: str, seconds: float) -> None:
        self._seconds = seconds
        super().__init__(address)

    def _do_request(self, method: str, endpoint: str, **options: Any) -> requests.Response:
        response: requests.Response = super()._do_request(method, endpoint, **{"timeout": self._seconds, **options})
        return response


class RayJobs(RayRunLauncher):  # type: ignore[misc]  # mypy reads neither Ray nor dagster-ray
    """Jobs of Dagster runs on one cluster. Errors of a head that does not answer are ``HeadSilent``, refusals ``OSError``."""

    def __init__(self, settings: RaySettings) -> None:
        own = [f"RAY_JOB_STOP_WAIT_TIME_S={settings.stop_seconds}", "RAY_USAGE_STATS_ENABLED=0", f"{PLACED}=ray"]
        # With a number of cores, a job goes to any node; without one, Ray puts it on the head.
        super().__init__(address=settings.address, num_cpus=1, env_vars=[*settings.env_vars, *own])
        self.settings = settings

    @cached_property
    def client(self) -> JobSubmissionClient:
        """Client of the head's dashboard, whose requests end."""
        return _BoundedClient(self.address, min(_ANSWER_SECONDS, self.settings.lost_seconds))

    def submit(self, run: dg.DagsterRun) -> None:
        """Submit the job of a run.

        Raises:
            ConfigError: the command would show a secret, or the cluster is not to be used without a token.
        """
        if self.settings.token and os.environ.get("RAY_AUTH_MODE", "").lower() != "token":
            rule = "must be `token` here and where `ray start` runs, with the same RAY_AUTH_TOKEN; or say `token: false`"
            raise ConfigError("environment", "RAY_AUTH_MODE", os.environ.get("RAY_AUTH_MODE", ""), rule)
        wanted = wanted_of(run)
        options = {"num_cpus": wanted.cpus, "num_gpus": wanted.gpus or None, "memory": wanted.memory or None}
        tagged = run.with_tags({**run.tags, _JOB_TAG: json.dumps(options)})
        self._launch_ray_job(job_name(run.run_id), self.command(run), tagged)

    def command(self, run: dg.DagsterRun) -> str:
        """Shell command of a job: what Dagster's launchers execute, quoted, with the environment of the node.

        Raises:
            ConfigError: it would show a secret.
        """
        origin = json.loads(dg.serialize_value(run.job_code_origin))
        instance = json.loads(dg.serialize_value(self._instance.get_ref()))
        for place in _secrets(instance):
            rule = "is a secret, which Ray would show as part of a job's command; write `env: NAME` in its place"
            raise ConfigError(_FILE, place, "...", rule)
        arguments = {"__class__": "ExecuteRunArgs", "pipeline_origin": origin, "pipeline_run_id": run.run_id}
        content = json.dumps({**arguments, "instance_ref": instance, "set_exit_code_on_failure": True})
        code = run.job_code_origin
        python = self.settings.python or (code.executable_path if code is not None else "python")
        chosen = {entry.partition("=")[0] for entry in self.settings.env_vars}
        threads = (
            [] if _THREADS in chosen else [f"{_THREADS}={os.environ[_THREADS]}"] if _THREADS in os.environ else ["-u", _THREADS]
        )
        # Bits may depend on the threads of NumPy's BLAS, which else are as many as the node has cores.
        threads += [] if BLAS in chosen else [f"{BLAS}={blas_threads()}"]
        return shlex.join(["env", *threads, python, "-m", "dagster", "api", "execute_run", content])

    def job(self, run_id: str) -> JobDetails | None:
        """Job of a run as the head knows it; None if it does not."""
        try:
            with _answered():
                return self.client.get_job_info(job_name(run_id))
        except UnknownJob:
            return None

    def stop(self, run_id: str) -> bool:
        """Ask the job of a run to end; False if the head does not know it, or it has ended."""
        try:
            with _answered():
                return bool(self.client.stop_job(job_name(run_id)))
        except UnknownJob:
            return False

    def ending(self, job: JobDetails) -> str:
        """Reason of a job's end, with the last lines that it wrote."""
        try:
            text = self.client.get_job_logs(job.submission_id)
        except (RuntimeError, OSError):
            text = ""
        tail = " | ".join(line.strip() for line in text.splitlines()[-_TAIL_LINES:] if line.strip())
        missing = job.driver_exit_code in (126, 127)
        remedy = f"; {_FIELD}.python in {_FILE} names the interpreter with modyn-dagster on the nodes" if missing else ""
        return without_secrets(f"its Ray job is {job.status.value}: {job.message or 'no reason given'}{remedy}; {tail}")

    def largest_nodes(self, wanted: Resources) -> str | None:
        """Describe the nodes of a cluster, none of which has room for a run even when idle; None if one has."""
        from ray.util.state import list_nodes

        # Otherwise a cluster that has lost a node answers with an error.
        alive = list_nodes(self.address, filters=[("state", "=", "ALIVE")], raise_on_missing_output=False)
        nodes = [node.resources_total for node in alive]
        has = [(node.get("CPU", 0), node.get("GPU", 0), _bytes(node.get("memory", 0))) for node in nodes]
        if any(cpus >= wanted.cpus and gpus >= wanted.gpus and memory >= wanted.memory for cpus, gpus, memory in has):
            return None
        return ", ".join(f"{cpus:g} CPUs, {gpus:g} GPUs, {memory / 1e9:.3g} GB" for cpus, gpus, memory in sorted(set(has)))


def job_name(run_id: str) -> str:
    """Name of the job of a run: dagster-ray's."""
    return f"dagster-run-{run_id}"


def has_ended(job: JobDetails) -> bool:
    """True if a job is over."""
    return bool(job.status.is_terminal())


def is_waiting(job: JobDetails) -> bool:
    """True if a job has not found room yet."""
    return bool(job.status == JobStatus.PENDING)


def wanted_of(run: dg.DagsterRun) -> Resources:
    """Share of a node that a run reserves: that of its tag, or one core.

    Raises:
        ConfigError: somebody gave the run a tag that says no resources.
    """
    text = run.tags.get(RESOURCES_TAG, "{}")
    try:
        return Resources(**json.loads(text))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"run {run.run_id}", RESOURCES_TAG, text, "must be a JSON object with cpus, gpus and memory") from error


@contextmanager
def _answered() -> Iterator[None]:
    """Give the errors of a request to the head a class: Ray has none of its own for an unknown job, and many for silence."""
    try:
        yield
    except (requests.ConnectionError, requests.Timeout, ConnectionError) as error:
        raise HeadSilent(f"the head of the cluster does not answer: {error}") from error
    except (RuntimeError, RayError) as error:
        if "does not exist" in str(error) or "status code 404" in str(error):
            raise UnknownJob(str(error)) from error
        raise OSError(f"the head of the cluster refuses: {error}") from error


def _bytes(memory: float | str) -> float:
    """Bytes of a node's memory, which Ray may have written for people: ``7.2 GiB``."""
    if isinstance(memory, str):
        number, _, unit = memory.partition(" ")
        return float(number) * 1024.0 ** ("B", "KiB", "MiB", "GiB", "TiB").index(unit or "B")
    return float(memory)


def _secrets(content: Any, place: str = "") -> Iterator[str]:
    """Places of passwords and the like in parsed JSON, also in the YAML texts that Dagster keeps inside of it."""
    if isinstance(content, Mapping):
        for name, value in content.items():
            inner = f"{place}.{name}" if place else str(name)
            if isinstance(value, str) and value and _SECRET_NAME.search(str(name)):
                yield inner
            elif name == "config_yaml" and isinstance(value, str):
                yield from _secrets(yaml.safe_load(value), place)
            else:
                yield from _secrets(value, inner)
    elif isinstance(content, list | tuple):
        for each in content:
            yield from _secrets(each, place)
    elif isinstance(content, str) and _SECRET_VALUE.search(content):
        yield place
