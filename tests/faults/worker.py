"""A warm process, loaded with the library of faults, that forks a child per task and lets it follow a plan.

It reads one JSON task per line from standard input and answers each with the exit code of the child. ``Worker`` is the other
end of the pipe.
"""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from modyn_dagster.catalog.database.urls import child_environment
from modyn_dagster.errors import ModynError
from modyn_dagster.settings import Settings
from tests.faults import injector
from tests.faults.plan import Plan
from tests.projects.tiny import ROOT

#: Seconds after which a child counts as hanging.
_LONGEST: Final = 240
_TRIED: Final = set[str]()


@dataclass(frozen=True)
class Ending:
    """End of a task.

    Attributes:
        exit_code: negative for a signal.
        error: class and message of what it raised; None: it was done, or killed.
        is_clear: that was an error of ours, or of the operating system: commands show both as a sentence.
        traceback: of it.
        n_hits: calls that its plan has struck.
    """

    exit_code: int
    error: str | None = None
    is_clear: bool = True
    traceback: str = ""
    n_hits: int = 0

    @property
    def is_done(self) -> bool:
        return self.exit_code == 0

    def __str__(self) -> str:
        return "done" if self.is_done else (self.error or f"signal {-self.exit_code}")[:200]


class Worker:
    """Runs tasks one at a time in children of one warm process."""

    def __init__(self, library: Path, log: Path) -> None:
        self._log, self._report = log, log.with_name("report.json")
        with open(log, "wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.worker"],
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **injector.environment(library)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )

    def run(self, settings: Settings, task: str, *arguments: Any, plan: Plan | None = None) -> Ending:
        """Run a function of ``tests.faults.tasks`` to its end, under a plan."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._report.unlink(missing_ok=True)
        content = {
            "environment": settings.environment() | child_environment(settings),
            "task": task,
            "arguments": arguments,
            "plan": str(plan.path) if plan else None,
            "report": str(self._report),
        }
        self._process.stdin.write(json.dumps(content) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the worker ended:\n{self._log.read_text()}"
        report = json.loads(self._report.read_text()) if self._report.exists() else {}
        report.pop("modules", None)
        return Ending(json.loads(answer), **report, n_hits=plan.hits if plan else 0)

    def stop(self) -> None:
        """End the process; a task's child is gone before its ending is told."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _serve(answers: Any) -> None:
    from tests.faults import tasks

    for line in sys.stdin:
        content = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(getattr(tasks, content.pop("task")), **content)
        _, status = os.waitpid(child, 0)
        _learn(Path(content["report"]))
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


def _learn(report: Path) -> None:
    """Import what a child had imported, so that the next one has it from the start; the project's code is left to children."""
    names = json.loads(report.read_text()).get("modules", []) if report.exists() else []
    for name in set(names) - _TRIED:
        _TRIED.add(name)
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _run(task: Callable[..., Any], environment: Mapping[str, str], arguments: list[Any], plan: str | None, report: str) -> None:
    """The child: never returns."""
    signal.alarm(_LONGEST)
    os.environ.update(environment)
    ending: dict[str, Any] = {}
    try:
        settings = Settings.from_environment()
        sys.path.insert(0, str(settings.project / "code"))
        if plan is not None:
            injector.begin(Path(plan))
        task(settings, *arguments)
    except BaseException as error:  # noqa: BLE001 - the parent judges it
        ending["error"] = f"{type(error).__name__}: {error}"
        ending["is_clear"] = isinstance(error, ModynError | OSError)
        ending["traceback"] = traceback.format_exc()
    injector.end()
    ending["modules"] = [name for name in sys.modules if name != "__main__"]
    Path(report).write_text(json.dumps(ending))
    os._exit(1 if "error" in ending else 0)


if __name__ == "__main__":
    # Whatever is loaded may print; answers have the pipe for themselves.
    _ANSWERS = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _serve(_ANSWERS)
