"""The process that serves a data directory, found through ``postmaster.pid`` and ``/proc``.

Command lines are compared, not only process ids: after a power cut, or in a new container, the id in the file may belong to
any process.
"""

import signal
from dataclasses import dataclass
from os import kill
from pathlib import Path

from modyn_dagster.values.digest import bytes_digest


@dataclass(frozen=True, slots=True)
class Postmaster:
    """First process of a running server; ``ready`` when it accepts connections."""

    pid: int
    ready: bool

    def shut_down(self) -> None:
        """Ask for a fast shutdown: sessions are ended, everything is written."""
        kill(self.pid, signal.SIGINT)


def cluster_name(data: Path) -> str:
    """Setting that identifies this data directory's server in a command line."""
    return f"modyn-{bytes_digest(bytes(data), 6)}"


def postmaster_of(data: Path) -> Postmaster | None:
    """Find the server that runs over ``data``, if any."""
    lines = _pid_file_lines(data)
    # Lines: process id, data directory, start time, port, socket directory, host, shared memory, status.
    if len(lines) < 2 or not _serves(int(lines[0]), Path(lines[1]), data):
        return None
    return Postmaster(int(lines[0]), ready=len(lines) > 7 and lines[7].strip() == "ready")


def clear_stale_pid_file(data: Path) -> None:
    """Remove a ``postmaster.pid`` that Postgres would take for a running server's; call it only when none runs.

    Removed are an empty or torn file, and one whose process id now belongs to another process. An id without a process is
    left to Postgres, which looks at the old shared memory first.
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
    """Tell whether ``pid`` serves ``data``, recorded under this or an earlier path; a copy elsewhere does not count."""
    if recorded.exists() and not recorded.samefile(data):
        return False
    return f"cluster_name={cluster_name(recorded)}".encode() in _command_line(pid).split(b"\0")


def _command_line(pid: int) -> bytes:
    """Command line of a process; empty when it has ended or waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
