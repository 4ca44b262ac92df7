"""Client of the zygote, in the process that launches runs: starts one, asks it for processes, and replaces one that is gone."""

import json
import logging
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import psutil

#: A fork takes milliseconds; comparing the files of its code some more, on a busy disk.
_ANSWER_SECONDS: Final = 10.0
_END_SECONDS: Final = 5.0
_LOG: Final = logging.getLogger(__name__)


class WarmProcess:
    """A zygote, as long as it is of use. Nothing waits for it: where none is ready, runs are started in another way.

    Attributes:
        ended: called, in a thread of its own, with the run and the exit code of each process that has ended; not once the
            zygote is gone.
    """

    def __init__(self, ended: Callable[[str, int], object]) -> None:
        self.ended = ended
        self._lock = threading.Lock()
        self._zygote: _Zygote | None = None
        self._in_vain = False

    def is_ready(self) -> bool:
        """True if a zygote can be asked for processes; otherwise one is started for the next time."""
        with self._lock:
            return self._ready() is not None

    def process_for(self, run_id: str, arguments: str) -> int | None:
        """Number of a new process that executes a run, or None if there is no zygote that could have forked it.

        Args:
            run_id: id of the run.
            arguments: what Dagster's ``api execute_run`` is given, as JSON.
        """
        with self._lock:
            zygote = self._ready()
            return None if zygote is None else zygote.fork(run_id, arguments)

    def _ready(self) -> "_Zygote | None":
        zygote = self._zygote
        if zygote is not None and (zygote.is_gone or zygote.environment != dict(os.environ)):
            # One that ended before it was of use would end so again.
            self._in_vain = zygote.is_gone and not zygote.is_ready
            zygote.close()
            zygote = self._zygote = None
        if zygote is None and not self._in_vain:
            self._zygote = _Zygote(self.ended)
        return zygote if zygote is not None and zygote.is_ready else None

    def close(self) -> None:
        """End the zygote; processes that execute runs go on."""
        with self._lock:
            if self._zygote is not None:
                self._zygote.close()
                self._zygote = None


class _Zygote:
    """One process, from its start to its end."""

    def __init__(self, ended: Callable[[str, int], object]) -> None:
        self.environment = dict(os.environ)
        self.is_ready = self.is_gone = False
        self._ended = ended
        self._known: set[int] = set()
        self._answers: queue.Queue[Mapping[str, Any]] = queue.Queue()
        self._control, theirs = socket.socketpair()
        with theirs:
            # Output goes where this process's goes, and the group of processes is this one's, as with a code server.
            command = [sys.executable, "-m", "modyn_dagster.resources.warm.zygote", str(theirs.fileno())]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        threading.Thread(target=self._listen, name="zygote", daemon=True).start()

    def fork(self, run_id: str, arguments: str) -> int | None:
        """Number of the process that executes a run; None if there is none, and there will be none later either."""
        request = json.dumps({"run_id": run_id, "arguments": arguments})
        try:
            self._control.sendall(request.encode() + b"\n")
            answer = self._answers.get(timeout=_ANSWER_SECONDS)
        except (OSError, queue.Empty):
            answer = {}
        child = answer.get("forked")
        if child is not None:
            self._known.add(child)
            return int(child)
        self._kill_with_unknown_children()
        self.is_gone = True
        return None

    def close(self) -> None:
        """End the process: the end of its socket is what it listens for."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _kill_with_unknown_children(self) -> None:
        """Kill a process that did not answer, with a child that it may have forked without saying so."""
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            process.suspend()
            unknown = [child for child in process.children() if child.pid not in self._known]
            for each in [*unknown, process]:
                with suppress(psutil.NoSuchProcess):
                    each.kill()

    def _report_end(self, run_id: str, code: int) -> None:
        try:
            self._ended(run_id, code)
        except Exception:  # noqa: BLE001 - of whatever storage
            # Nobody else listens; the monitoring of runs notices the end as well.
            _LOG.exception("the end of run %s could not be reported", run_id)

    def _listen(self) -> None:
        """Pass on what the zygote says, until it is gone."""
        with self._control.makefile("rb") as lines, suppress(OSError, ValueError):
            for line in lines:
                answer = json.loads(line)
                if "ready" in answer:
                    self.is_ready = True
                elif "ended" in answer:
                    self._report_end(answer["ended"], answer["code"])
                elif "refused" in answer:
                    _LOG.warning("runs are started anew: %s", answer["refused"])
                else:
                    self._answers.put(answer)
        self.is_gone = True
        self._answers.put({})
        self._control.close()
