"""Which process serves a data directory, as its ``postmaster.pid`` and ``/proc`` tell.

Command lines are compared, not only numbers: after a power cut, or in a new container, the number in the file may
belong to any process.
"""

import signal
from dataclasses import dataclass
from os import kill
from pathlib import Path

from modyn_dagster.digest import bytes_digest


@dataclass(frozen=True, slots=True)
class Postmaster:
    """The first process of a running server; ``ready`` when it accepts connections."""

    pid: int
    ready: bool

    def shut_down(self) -> None:
        """Ask for a fast shutdown: sessions are ended, everything is written."""
        kill(self.pid, signal.SIGINT)


def cluster_name(data: Path) -> str:
    """The setting by which the command line of this data directory's server is recognised."""
    return f"modyn-{bytes_digest(bytes(data), 6)}"


def postmaster_of(data: Path) -> Postmaster | None:
    """The server that runs over ``data``, if any."""
    lines = _pid_file_lines(data)
    # Lines: process id, data directory, start time, port, socket directory, host, shared memory, status.
    if len(lines) < 2 or not _serves(int(lines[0]), Path(lines[1]), data):
        return None
    return Postmaster(int(lines[0]), ready=len(lines) > 7 and lines[7].strip() == "ready")


def clear_stale_pid_file(data: Path) -> None:
    """Remove a ``postmaster.pid`` that Postgres would take for a running server's; to be called when none runs.

    That is an empty or torn one, or one whose number now belongs to another process. A number that belongs to none
    Postgres handles itself, and looks at the old shared memory first.
    """
    lines = _pid_file_lines(data)
    if not lines or Path(f"/proc/{lines[0].strip()}").exists():
        (data / "postmaster.pid").unlink(missing_ok=True)


def _pid_file_lines(data: Path) -> list[str]:
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    # A power cut can leave the file empty or torn.
    return lines if lines and lines[0].strip().isdigit() else []


def _serves(pid: int, recorded: Path, data: Path) -> bool:
    """Whether ``pid`` is the server of ``recorded``, and that is ``data``: under another name or moved, but no copy of it."""
    if recorded.exists() and not recorded.samefile(data):
        return False
    return f"cluster_name={cluster_name(recorded)}".encode() in _command_line(pid).split(b"\0")


def _command_line(pid: int) -> bytes:
    """Empty when the process is gone or only waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
