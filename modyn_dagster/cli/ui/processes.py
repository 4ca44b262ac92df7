"""Groups of long-running programs: started together, watched, and stopped to the last descendant."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from modyn_dagster.errors import ServiceEnded, ServiceError, ServiceFailed

#: Every process of a group carries this variable; it names the group's folder of logs.
MARK: Final = "MODYN_SERVICES"
_GRACE_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.1
_TAIL_LINES: Final = 20
_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class Service:
    """A program and a check that it answers.

    Attributes:
        name: name in messages; the log is ``<name>.log``.
        command: program and arguments, without secrets: everybody on the machine can read them.
        environment: variables in addition to this process's.
        answers: check that is repeated after the start until it returns True.
    """

    name: str
    command: Sequence[str | Path]
    environment: Mapping[str, str]
    answers: Callable[[], bool]


class Services:
    """Services of one folder of logs. ``stop`` ends their whole process groups and any descendant that left them.

    With ``foreground`` they write where this process writes; the folder only tells their processes from others.
    """

    def __init__(self, logs: Path, folder: Path, *, foreground: bool = False) -> None:
        self._logs = logs
        self._folder = folder
        self._foreground = foreground
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, service: Service) -> None:
        """Start one service in its own process group, so that Ctrl-C in the terminal reaches only this process."""
        self._logs.mkdir(parents=True, exist_ok=True)
        with nullcontext() if self._foreground else open(self.log_of(service.name), "wb") as log:
            self._running[service.name] = subprocess.Popen(
                [str(part) for part in service.command],
                cwd=self._folder,
                env={**os.environ, **service.environment, MARK: str(self._logs)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=None if log is None else subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until_answering(self, services: Sequence[Service], timeout: float) -> None:
        """Wait until all services answer; ``ServiceError`` when one ends, or is silent for ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        silent = list(services)
        while silent:
            self.check()
            silent = [service for service in silent if not service.answers()]
            if silent and time.monotonic() > deadline:
                name = silent[0].name
                raise self._error(name, f"does not answer after {timeout:.0f} s")
            time.sleep(_POLL_SECONDS)

    def watch(self) -> None:
        """Wait until a service ends, then raise ``ServiceError``."""
        while True:
            self.check()
            time.sleep(_POLL_SECONDS)

    def check(self) -> None:
        """Raise ``ServiceFailed`` if a service has ended; in the foreground ``ServiceEnded``."""
        for name, process in self._running.items():
            if (code := process.poll()) is not None:
                raise self._error(name, f"ended with {_ending(code)}")

    def stop(self, grace: float = _GRACE_SECONDS) -> None:
        """Send TERM to all processes and KILL to the rest after ``grace`` seconds; none runs afterwards."""
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline and self._any_runs():
            time.sleep(_POLL_SECONDS)
        self._signal(signal.SIGKILL)
        for process in self._running.values():
            process.wait()
        self._running.clear()
        stop_leftovers(self._logs)

    def log_of(self, name: str) -> Path:
        """Log file of a service."""
        return self._logs / f"{name}.log"

    def _signal(self, number: signal.Signals) -> None:
        groups = {process.pid for process in self._running.values()}
        for group in groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, number)
        for process in _marked(self._logs):
            # Once per process: some programs take a second TERM as an order to drop everything.
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getpgid(process.pid) not in groups:
                    process.send_signal(number)

    def _any_runs(self) -> bool:
        return any(process.poll() is None for process in self._running.values()) or bool(_marked(self._logs))

    def _error(self, name: str, what: str) -> ServiceError:
        if self._foreground:
            return ServiceEnded(name, what)
        return ServiceFailed(name, what, self.log_of(name), self._tail(name))

    def _tail(self, name: str) -> str:
        lines = self.log_of(name).read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])


def stop_leftovers(logs: Path) -> int:
    """Kill every process left behind by services of this folder of logs, started by this process or a killed one.

    Returns their number. ``MARK`` in the environment identifies them; descendants inherit it, even in another process group.
    """
    count = 0
    for _ in range(_ATTEMPTS):  # a process may start another one while it is being killed
        leftovers = _marked(logs)
        for process in leftovers:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(leftovers, timeout=_GRACE_SECONDS)
        count += len(leftovers)
    return count


def _marked(logs: Path) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if _mark_of(process) == str(logs)]


def _mark_of(process: psutil.Process) -> str | None:
    if process.pid == os.getpid():
        return None
    try:
        mark: str | None = process.environ().get(MARK)
    except psutil.Error:  # another user's, or it has just ended
        return None
    return mark


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
