"""Parsers in processes of their own, for functions that hold Python's lock."""

import os
import queue
import subprocess
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from modyn_dagster.errors import TrainingError
from modyn_dagster.training.parsing.function import Columns, NotArrays, ParseFailed
from modyn_dagster.training.parsing.worker import receive_columns, send_blobs


class Processes:
    """A few processes that run one parser; thread-safe. They start at the first call and end with this object, or ours.

    They are new interpreters with the same import path, not forks: they inherit neither threads nor locks, and do not run
    the main program again.
    """

    def __init__(self, path: str, per: Literal["batch", "sample"], count: int) -> None:
        self._command = [sys.executable, "-m", "modyn_dagster.training.parsing.worker", path, per]
        self._count = count
        self._open()

    def __call__(self, blobs: Sequence[Any]) -> Columns:
        """Parse samples in a process; ``ParseFailed`` also when the process dies over one of them."""
        if self._owner != os.getpid():
            # After a fork, the pipes belong to the parent process.
            self._open()
        try:
            return self._answer(blobs)
        except EOFError as error:
            raise self._culprit(blobs, str(error)) from error

    def close(self) -> None:
        """End the processes at once."""
        self._end()

    def _open(self) -> None:
        self._idle: queue.LifoQueue[subprocess.Popen[bytes] | None] = queue.LifoQueue()
        for _ in range(self._count):
            self._idle.put(None)
        self._started: list[subprocess.Popen[bytes]] = []
        self._end = weakref.finalize(self, end_all, self._started, os.getpid())
        # Last, because other threads of a forked process check it.
        self._owner = os.getpid()

    def _answer(self, blobs: Sequence[Any]) -> Columns:
        process, sound = self._idle.get(), False
        try:
            process = process if process is not None else self._start()
        except BaseException:
            self._idle.put(None)
            raise
        try:
            send_blobs(cast(BinaryIO, process.stdin), blobs)
            columns = receive_columns(cast(BinaryIO, process.stdout))
            sound = True
            return columns
        except (ParseFailed, NotArrays):
            sound = True
            raise
        except (EOFError, OSError, ValueError) as error:
            # A closed pipe is a ValueError.
            raise EOFError(_ending(process)) from error
        finally:
            if not sound:
                self._dropped(process)
            self._idle.put(process if sound else None)

    def _start(self) -> "subprocess.Popen[bytes]":
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
        process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self._started.append(process)
        if not self._end.alive:
            end_all(self._started, self._owner)
        try:
            receive_columns(cast(BinaryIO, process.stdout))
        except (EOFError, OSError, ValueError) as error:
            reason = f"{_ending(process)} before it was ready; its standard error says why"
            self._dropped(process)
            raise TrainingError(f"the parser {self._command[-2]} cannot run in a process of its own: {reason}") from error
        return process

    def _dropped(self, process: "subprocess.Popen[bytes]") -> None:
        end_all([process], self._owner)
        self._started.remove(process)

    def _culprit(self, blobs: Sequence[Any], ending: str) -> ParseFailed:
        """Find the first sample that alone ends a process; None of them if the process was killed or closed."""
        for position in range(len(blobs) if self._end.alive else 0):
            try:
                self._answer(blobs[position : position + 1])
            except EOFError as error:
                return ParseFailed(position, str(error))
        return ParseFailed(None, ending)


def _ending(process: "subprocess.Popen[bytes]") -> str:
    try:
        code = process.wait(timeout=1)
    except subprocess.TimeoutExpired:
        return "its process does not answer"
    return f"its process was killed by signal {-code}" if code < 0 else f"its process ended with status {code}"


def end_all(processes: "list[subprocess.Popen[bytes]]", owner: int) -> None:
    """Kill these processes and wait for them, in the process that owns them; others may take theirs off the list meanwhile."""
    if os.getpid() != owner:
        return
    # Working threads remove their processes from the list.
    ending = list(processes)
    for process in ending:
        process.kill()
    for process in ending:
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                _close(cast(BinaryIO, pipe))


def _close(pipe: BinaryIO) -> None:
    # The pipe may hold bytes that the process never read.
    with suppress(OSError):
        pipe.close()
