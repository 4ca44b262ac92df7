"""A process that forks a child per job and learns what to import: what one child had imported, the next one has from the start.

It reads one JSON job per line from standard input and answers each with the exit code of the child. ``ForkServer`` is the
other end of the pipe.
"""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dagster import DagsterRunStatus

from tests.dagster.face import Face
from tests.disk import do_not_wait_for_the_disk
from tests.integration.harness.kill_points import Point, Watch
from tests.projects.tiny import DATASET, ROOT

_TRIED: set[str] = set()


@dataclass(frozen=True)
class Job:
    """Work of a child: import the dataset's history, replay a pipeline over a range of batches, or run its production.

    Attributes:
        environment: of the child; its ``DAGSTER_HOME`` holds the Dagster instance.
        database: whose commits are counted.
        report: file the child leaves when it was not killed: points passed, error if any, and what it had imported.
        pipeline: to replay; None imports.
        live: tick its sensor and launch what that asks for until it asks for nothing, instead of a replay.
        deletion: deletion request to execute instead of all that.
        victim: process to kill at ``point`` instead of the child itself.
        table: whose commits alone are counted; none: all.
    """

    environment: Mapping[str, str]
    database: str
    report: str
    pipeline: str | None = None
    batches: tuple[str, str] = ("", "")
    live: bool = False
    deletion: int | None = None
    point: Mapping[str, Any] | None = None
    victim: int | None = None
    table: str = ""


@dataclass(frozen=True)
class Result:
    """``exit_code`` is negative for a signal; without a report the child was killed."""

    exit_code: int
    passed: list[str]
    error: str | None


class ForkServer:
    """Runs jobs one at a time in children of one warm process."""

    def __init__(self, log: Path) -> None:
        self._log = log
        with open(log, "wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.harness.fork_server"],
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )

    def run(self, job: Job) -> Result:
        """Run a job to its end and return its result."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        report = Path(job.report)
        report.unlink(missing_ok=True)
        self._process.stdin.write(json.dumps(asdict(job)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the fork server ended:\n{self._log.read_text()}"
        content = json.loads(report.read_text()) if report.exists() else {"passed": [], "error": None}
        return Result(json.loads(answer), content["passed"], content["error"])

    def stop(self) -> None:
        """End the server; a job's child is gone before its result is."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _serve() -> None:
    for line in sys.stdin:
        job = Job(**json.loads(line))
        child = os.fork()
        if child == 0:
            _run(job)
        _, status = os.waitpid(child, 0)
        _learn(Path(job.report))
        print(os.waitstatus_to_exitcode(status), file=_ANSWERS, flush=True)


def _learn(report: Path) -> None:
    """Only modules: a connection or a thread would not survive the fork. The project's own code is found by children alone."""
    names = json.loads(report.read_text())["modules"] if report.exists() else []
    for name in set(names) - _TRIED:
        _TRIED.add(name)
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _run(job: Job) -> None:
    """The child: never returns."""
    os.environ.update(job.environment)
    sys.path.insert(0, os.environ["PYTHONPATH"])
    point = Point(**job.point) if job.point else None
    watch = Watch(job.database, Path(os.environ["MODYN_HOME"]), point, job.table)
    if job.victim is not None:
        victim = job.victim
        watch.act = lambda: os.kill(victim, signal.SIGKILL)
    watch.install()
    do_not_wait_for_the_disk()
    error = None
    try:
        _work(job)
    except BaseException:  # noqa: BLE001 - the parent judges it
        error = traceback.format_exc()
    content = {"passed": watch.passed, "error": error, "modules": [name for name in sys.modules if name != "__main__"]}
    Path(job.report).write_text(json.dumps(content))
    os._exit(0 if error is None else 1)


def _work(job: Job) -> None:
    from dagster import DagsterInstance

    from modyn_dagster.assets.samples import announce_batches
    from modyn_dagster.build import build_definitions
    from modyn_dagster.cli.dagster_runs import ReplayOptions, replay_range
    from modyn_dagster.ingestion.history import import_history
    from modyn_dagster.pipeline.operate.deletion.execute import execute_request
    from modyn_dagster.pipeline.platform import Platform
    from modyn_dagster.settings import Settings

    settings = Settings.from_environment()
    with DagsterInstance.get() as instance:
        if job.deletion is not None:
            execute_request(Platform.open(settings), job.deletion, lambda _: iter(()))
        elif job.pipeline is None:
            platform = Platform.open(settings)
            project = platform.project
            import_history(platform.engine, platform.home, project.datasets[DATASET], project.root_of(DATASET))
            announce_batches(instance, platform, DATASET)
        elif job.live:
            _produce(Face(settings, instance), job.pipeline)
        else:
            first, last = job.batches
            replay_range(build_definitions(settings=settings), instance, job.pipeline, (first, last), ReplayOptions())


def _produce(face: Face, pipeline: str) -> None:
    over = (DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)
    for run in face.instance.get_runs():
        if run.status not in over:
            # As the monitoring of runs does: the process that executed it is gone.
            face.instance.report_run_failed(run)
    cursor = None
    while (ticked := face.tick(f"triggering__{pipeline}", cursor)).requests:
        for request in ticked.requests:
            face.launch(request)
        cursor = ticked.cursor


if __name__ == "__main__":
    # Whatever is loaded may print; answers have the pipe for themselves.
    _ANSWERS = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _serve()
