"""Parsers in processes of their own, for functions that hold Python's lock."""

import os
import queue
import weakref
from collections.abc import Sequence
from typing import Any, BinaryIO, Literal, cast

from modyn_dagster.distributed.children import Child, end_all, ending_of, start_child
from modyn_dagster.errors import TrainingError
from modyn_dagster.training.parsing.function import Columns, NotArrays, ParseFailed
from modyn_dagster.training.parsing.worker import receive_columns, send_blobs


class Processes:
    """A few processes that run one parser; thread-safe. They start at the first call and end with this object, or ours.

    They are new interpreters with the same import path, not forks.
    """

    def __init__(self, path: str, per: Literal["batch", "sample"], count: int) -> None:
        self._command = ["modyn_dagster.training.parsing.worker", path, per]
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
        self._idle: queue.LifoQueue[Child | None] = queue.LifoQueue()
        for _ in range(self._count):
            self._idle.put(None)
        self._started: list[Child] = []
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
            raise EOFError(ending_of(process)) from error
        finally:
            if not sound:
                self._dropped(process)
            self._idle.put(process if sound else None)

    def _start(self) -> Child:
        process = start_child(self._command)
        self._started.append(process)
        if not self._end.alive:
            end_all(self._started, self._owner)
        try:
            receive_columns(cast(BinaryIO, process.stdout))
        except (EOFError, OSError, ValueError) as error:
            reason = f"{ending_of(process)} before it was ready; its standard error says why"
            self._dropped(process)
            raise TrainingError(f"the parser {self._command[-2]} cannot run in a process of its own: {reason}") from error
        return process

    def _dropped(self, process: Child) -> None:
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
