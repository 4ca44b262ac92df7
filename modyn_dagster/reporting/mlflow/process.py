"""Tracker in a process of its own: it imports MLflow and waits for it while the work goes on in the other one.

The two exchange a line of JSON per question and answer over the child's standard input and output, and an empty line whenever
the child has got further. The child ends with its parent: its input is closed then. One that is silent for longer than
``MODYN_MLFLOW_TIMEOUT`` is killed. A child that is gone is a ``TrackingError``, as an MLflow that does not answer is; what it
has not shown, the next sync makes up for.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TextIO

from sqlalchemy.exc import SQLAlchemyError

from modyn_dagster.errors import ModynError, TrackingError, TrackingSilence
from modyn_dagster.imports import loading
from modyn_dagster.settings import Settings

if TYPE_CHECKING:
    import sqlalchemy as sa

    from modyn_dagster.reporting.mlflow.tracker import Tracker

#: Seconds that a child may take to end once its input is closed.
_PATIENCE: Final = 30.0
#: By how much the child's priority is lower.
_NICE: Final = 5
#: Line of a child that has got further.
_PROGRESS: Final = "\n"


class Shown(NamedTuple):
    """A run in MLflow: its id there, and its page."""

    mlflow_run: str
    page: str


@dataclass(frozen=True, slots=True)
class TrackerAddress:
    """Arguments of a ``Tracker``: URI of MLflow, which may hold a password, address of its pages, and root of its files."""

    uri: str
    ui_url: str
    artifact_root: str | None


class TrackerProcess:
    """Child process with a tracker. Its methods block until it has answered; one thread at a time may call them.

    Args:
        settings: of the platform whose catalog is shown.
        address: of MLflow; it reaches the child through its input alone.
    """

    def __init__(self, settings: Settings, address: TrackerAddress) -> None:
        command = [sys.executable, "-m", __name__]
        environment = os.environ | settings.environment()
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True, encoding="utf-8"
        )
        self.address = address
        self._title = "its process"
        self._timeout = settings.mlflow_timeout
        self._is_silent = False
        with suppress(OSError):
            self._send(asdict(address))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sync_run(self, run: int, dagster_run: str, dagster_url: str | None) -> Shown:
        """Show a pipeline run, by its id in the catalog. Raises ``TrackingError``."""
        return self._ask({"run": run, "dagster_run": dagster_run, "dagster_url": dagster_url})[0]

    def sync_triggers(self, run: int, triggers: Sequence[int], dagster_run: str, dagster_url: str | None) -> list[Shown]:
        """Show triggers of one run, by their ids in the catalog. Raises ``TrackingError``."""
        return self._ask({"run": run, "triggers": list(triggers), "dagster_run": dagster_run, "dagster_url": dagster_url})

    def sync_comparison(
        self, dataset: str, scores: Mapping[str, float], files: Sequence[Path], dagster_run: str, dagster_url: str | None
    ) -> Shown:
        """Show the comparison of a dataset's pipelines, with files beside it. Raises ``TrackingError``."""
        about = {"comparison": dataset, "scores": dict(scores), "files": [str(file) for file in files]}
        return self._ask(about | {"dagster_run": dagster_run, "dagster_url": dagster_url})[0]

    @property
    def is_alive(self) -> bool:
        """False once the child has ended, or is to end."""
        assert self._child.stdin is not None  # noqa: S101 - a pipe, by construction
        return not self._is_silent and not self._child.stdin.closed and self._child.poll() is None

    def close(self) -> None:
        """End the child, once it has answered; it is killed if that takes long."""
        assert self._child.stdin is not None  # noqa: S101 - a pipe, by construction
        assert self._child.stdout is not None  # noqa: S101 - as above
        with suppress(OSError):
            self._child.stdin.close()
        try:
            self._child.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child.stdout.close()

    def _ask(self, question: Mapping[str, Any]) -> list[Shown]:
        assert self._child.stdout is not None  # noqa: S101 - a pipe, by construction
        try:
            with self._ended_if_silent():
                self._send(question)
            line = _PROGRESS
            while line == _PROGRESS:
                with self._ended_if_silent():
                    line = self._child.stdout.readline()
        except OSError as error:
            self._end()
            raise self._silence() or TrackingError(self._title, str(error)) from error
        except BaseException:
            self._end()
            raise
        if (silent := self._silence()) is not None:
            raise silent
        if not line.endswith("\n"):
            raise TrackingError(self._title, "it ended without an answer")
        answer = json.loads(line)
        if "failed" in answer:
            raise TrackingError(answer["address"], answer["failed"])
        return [Shown(*shown) for shown in answer["shown"]]

    @contextmanager
    def _ended_if_silent(self) -> Iterator[None]:
        """Kill the child if the block takes longer than an MLflow may: whoever waits for the child then notices its end."""
        watch = Timer(self._timeout, self._end_silent)
        watch.daemon = True
        watch.start()
        try:
            yield
        finally:
            watch.cancel()

    def _end_silent(self) -> None:
        self._is_silent = True
        self._child.kill()

    def _silence(self) -> TrackingError | None:
        from modyn_dagster.reporting.mlflow.client import address_of

        return TrackingSilence(address_of(self.address.uri), self._timeout) if self._is_silent else None

    def _end(self) -> None:
        """Kill the child in the middle of an exchange: its answer would be taken for that of the next question."""
        self._child.kill()
        self._child.wait()

    def _send(self, question: Mapping[str, Any]) -> None:
        assert self._child.stdin is not None  # noqa: S101 - a pipe, by construction
        self._child.stdin.write(json.dumps(question) + "\n")
        self._child.stdin.flush()


def main() -> None:
    """Answer the questions of the parent process until it closes the input."""
    # Ctrl-C reaches the whole group of a terminal; the parent decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Where there are not cores enough, the work goes first.
    os.nice(_NICE)
    answers = _private_output()

    def progress() -> None:
        answers.write(_PROGRESS)
        answers.flush()

    with loading():
        ask = _opened(TrackerAddress(**json.loads(sys.stdin.readline())), progress)
    progress()
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = {"shown": ask(json.loads(line))}
        except TrackingError as error:
            answer = {"failed": error.reason, "address": error.address}
        except (ModynError, SQLAlchemyError) as error:
            answer = {"failed": str(error), "address": "the catalog"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    # Everything is answered, and the parent waits: MLflow's modules would take a quarter of a second to be taken apart.
    sys.stderr.flush()
    os._exit(0)


def _private_output() -> TextIO:
    """Standard output for answers alone: whatever libraries print goes to standard error from here on."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _opened(address: TrackerAddress, progress: Callable[[], None]) -> Callable[[Mapping[str, Any]], list[Shown]]:
    """Import and open everything before the first question; where MLflow does not answer, every question fails with that."""
    from modyn_dagster.catalog.database.engine import open_engine
    from modyn_dagster.reporting.mlflow.client import open_client
    from modyn_dagster.reporting.mlflow.tracker import Tracker

    try:
        tracker = Tracker(open_client(address.uri), address.ui_url, address.artifact_root)
    except TrackingError as error:
        return partial(_refuse, error)
    return partial(_answer, open_engine(Settings.from_environment()), tracker, progress)


def _refuse(error: TrackingError, _question: Mapping[str, Any]) -> list[Shown]:
    raise error


def _answer(engine: sa.Engine, tracker: Tracker, progress: Callable[[], None], question: Mapping[str, Any]) -> list[Shown]:
    from modyn_dagster.catalog.database.engine import transaction
    from modyn_dagster.catalog.runs import get_run
    from modyn_dagster.catalog.triggers import get_trigger
    from modyn_dagster.reporting.mlflow.content import DagsterRun

    dagster = question["dagster_run"], question["dagster_url"]
    if "comparison" in question:
        files = [Path(file) for file in question["files"]]
        compared = tracker.sync_comparison(engine, question["comparison"], question["scores"], files, DagsterRun(*dagster))
        return [Shown(compared, tracker.url_of(compared))]
    with transaction(engine) as conn:
        run = get_run(conn, question["run"])
        triggers = [get_trigger(conn, trigger) for trigger in question.get("triggers", ())]
    if "triggers" in question:
        shown = tracker.sync_triggers(engine, run, triggers, *dagster, progress)
    else:
        shown = [tracker.sync_run(engine, run, *dagster, progress)]
    return [Shown(mlflow_run, tracker.url_of(mlflow_run)) for mlflow_run in shown]


if __name__ == "__main__":
    main()
