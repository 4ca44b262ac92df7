"""Zygote: a process that has imported what runs need, and forks a child for each run.

``client`` starts it with one end of a socket. It gets a JSON object per line and answers with one: ``ready`` or ``refused``
after its imports, ``forked`` or ``stale`` to a request, ``ended`` when a child has ended. It ends when the other end of the
socket is closed; children go on, as runs do when a daemon is restarted.

It forks before anything is started that a child could not go on with: a thread of Python, a connection, a parallel region. It
imports neither definitions nor a project's own code, which every child reads anew, and compares what it did import with the
files before each fork.
"""

import gc
import json
import os
import selectors
import socket
import sys
import threading
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

from modyn_dagster.resources.warm.imported_code import ImportedCode, import_everything

#: Interval of looking after children, only while there are any.
_REAP_SECONDS: Final = 0.1
_MOST_BYTES: Final = 1 << 16


class _Zygote:
    """The zygote's end of the socket, and its children by process number."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._unread = b""
        self._children: dict[int, str] = {}
        self._code = ImportedCode()
        # Output may go to one.
        self._sockets = _open_sockets()

    def warm_up(self, program: EntryPoint) -> bool:
        """Import everything and say so; False if this process must not be forked."""
        import_everything()
        program.load()
        self._code.note()
        # What lives as long as the process is left out of collections, whose marks would copy its pages into every child.
        gc.collect()
        gc.freeze()
        reason = self._why_not_to_fork()
        self._say({"refused": reason} if reason else {"ready": os.getpid()})
        return reason is None

    def serve(self) -> str | None:
        """Fork a child for each request: returns its arguments in the child, and None in the zygote when it is to end."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            while True:
                if selector.select(_REAP_SECONDS if self._children else None):
                    received = self._control.recv(_MOST_BYTES)
                    if not received:
                        return None
                    *lines, self._unread = (self._unread + received).split(b"\n")
                    for request in map(json.loads, lines):
                        child = self._fork(request)
                        if child is None:
                            return None
                        if child == 0:
                            return str(request["arguments"])
                self._reap()

    def _fork(self, request: Mapping[str, Any]) -> int | None:
        """Fork, and answer in the parent; None where the code has changed."""
        changed = self._code.changed()
        if changed is not None:
            self._say({"stale": changed})
            return None
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child != 0:
            self._children[child] = request["run_id"]
            self._say({"forked": child})
        return child

    def _reap(self) -> None:
        for child in list(self._children):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                self._say({"ended": self._children.pop(child), "code": os.waitstatus_to_exitcode(status)})

    def _why_not_to_fork(self) -> str | None:
        """Threads of Python or connections that imports began, and that a child would miss."""
        threads = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
        if threads:
            return f"importing started threads: {', '.join(threads)}"
        opened = _open_sockets() - self._sockets
        return f"importing opened {opened} connections" if opened else None

    def _say(self, answer: Mapping[str, Any]) -> None:
        self._control.sendall(json.dumps(answer).encode() + b"\n")


def _open_sockets() -> int:
    """Number of open sockets of this process."""
    return sum(path.is_socket() for path in Path("/proc/self/fd").iterdir())


def main() -> None:
    """Serve on the socket whose number is the first argument. A child goes on as Dagster's command that executes a run."""
    [program] = entry_points(group="console_scripts", name="dagster")
    arguments = None
    with socket.socket(fileno=int(sys.argv[1])) as control:
        zygote = _Zygote(control)
        try:
            if zygote.warm_up(program):
                arguments = zygote.serve()
        except (KeyboardInterrupt, ConnectionError):
            return
    if arguments is not None:
        sys.argv = ["dagster", "api", "execute_run", arguments]
        program.load()()


if __name__ == "__main__":
    main()
