"""Data directory and the server over it: create, launch, stop."""

import contextlib
import fcntl
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from modyn_dagster.backoff import wait_until
from modyn_dagster.catalog.embedded.account import Account
from modyn_dagster.catalog.embedded.binaries import Binaries
from modyn_dagster.catalog.embedded.listening import listening_settings
from modyn_dagster.catalog.embedded.postmaster import (
    Postmaster,
    clear_stale_pid_file,
    cluster_name,
    postmaster_of,
)
from modyn_dagster.errors import ServerFailed

# After a crash, a large database replays its log before the server accepts connections.
_START_SECONDS = 120
_STOP_SECONDS = 60
_POLL_SECONDS = 0.02
_LOG_LIMIT = 16 << 20
# From this version on a server can be told how often to hash a password for SCRAM.
_ITERATIONS_SINCE = 16
_SETTINGS = """
# Written by modyn-dagster when this directory was made; change what you like (docs/postgres.md).
max_connections = 200
shared_buffers = 256MB
fsync = on
jit = off
timezone = 'UTC'
log_timezone = 'UTC'
"""


class Cluster:
    """Folder of one server: ``data`` and ``server.log``, owned by the account it runs under."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "server.log"

    @property
    def major(self) -> int | None:
        """Postgres version that made the data directory; None when there is none yet."""
        try:
            return int((self.data / "PG_VERSION").read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def postmaster(self) -> Postmaster | None:
        """The running server, if any."""
        return postmaster_of(self.data)

    def claim(self) -> int | None:
        """Wait until no other process is creating, launching or ending a server here, and lock the folder.

        Returns None when a server runs; else a descriptor that holds the lock until it is closed. Processes that inherit
        it hold the lock too, so a server's processes do until the last one ends, even if the first was killed.
        """
        descriptor = None

        def is_settled() -> bool:
            nonlocal descriptor
            if (postmaster := self.postmaster()) is not None:
                return postmaster.ready
            descriptor = _lock(self.folder)
            return descriptor is not None

        if not wait_until(is_settled, timeout=_START_SECONDS, first=_POLL_SECONDS):
            raise ServerFailed(
                f"{self.folder}: processes use it that neither serve it nor end; {self.log} says:\n{self._log_since(0)}"
            )
        return descriptor

    def create(self, binaries: Binaries, account: Account, claim: int, user: str, password: str) -> None:
        """Create the data directory; it appears complete or not at all."""
        unfinished, secret = self.folder / "data.new", self.folder / "password.new"
        try:
            shutil.rmtree(unfinished, ignore_errors=True)
            secret.unlink(missing_ok=True)
            with open(secret, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(password)
            account.own(secret)
            options: list[str | Path] = ["-D", unfinished, f"--username={user}", f"--pwfile={secret}"]
            options += ["--auth-host=scram-sha-256", "--auth-local=scram-sha-256"]
            options += ["--encoding=UTF8", "--locale=C", "--data-checksums"]
            if binaries.major >= _ITERATIONS_SINCE:
                # Thousands of iterations protect a guessable password. Ours is random, and Dagster connects all the time.
                options += ["--set", "scram_iterations=1"]
            result = self._run(account, claim, [binaries["initdb"], *options], _START_SECONDS)
            if result.returncode != 0:
                raise ServerFailed(f"{self.data}: initdb failed: {result.stderr.strip()}")
            with open(unfinished / "postgresql.conf", "a") as configuration:
                configuration.write(_SETTINGS)
            unfinished.rename(self.data)
        except OSError as error:
            raise ServerFailed(f"{self.data}: cannot be made: {error}") from error
        finally:
            secret.unlink(missing_ok=True)

    def launch(self, binaries: Binaries, account: Account, claim: int, port: int, *, on_socket: bool) -> None:
        """Start the server on its socket or on ``port`` of 127.0.0.1, and wait until it accepts connections.

        Raises ``ServerFailed`` with the server's last log lines.
        """
        clear_stale_pid_file(self.data)
        # Left by a server that was killed: none runs, because ``claim`` is ours.
        for socket in self.folder.glob(".s.PGSQL.*"):
            socket.unlink(missing_ok=True)
        self._rotate_log()
        log_start = self._log_size()
        settings = {
            **listening_settings(self.folder, port, on_socket=on_socket),
            "cluster_name": cluster_name(self.data),
        }
        options = shlex.join(part for name, value in settings.items() for part in ("-c", f"{name}={value}"))
        # Names relative to the folder: pg_ctl hands them to a shell, and the path of a home may hold anything.
        command = ["start", "-D", self.data.name, "-l", self.log.name, "-w", "-t", str(_START_SECONDS), "-o", options]
        result = self._run(account, claim, [binaries["pg_ctl"], *command], _START_SECONDS + 30)
        if result.returncode != 0:
            message = self._log_since(log_start) or result.stderr.strip()
            raise ServerFailed(f"{self.data}: the server did not start; {self.log} says:\n{message}")

    def ends_within(self, seconds: float) -> bool:
        """Wait for the end of a server that is being stopped or was killed; False when the time is over."""
        return wait_until(lambda: self.postmaster() is None, timeout=seconds, first=_POLL_SECONDS)

    def stop(self) -> bool:
        """Shut the server down, ending its sessions, and wait for its last process; False when none ran."""
        if not self.folder.exists():
            return False
        claim, postmaster = self.claim(), self.postmaster()
        if claim is None and postmaster is not None:
            with contextlib.suppress(ProcessLookupError):
                postmaster.shut_down()
            if not self.ends_within(_STOP_SECONDS):
                raise ServerFailed(f"{self.data}: the server (process {postmaster.pid}) did not stop; see {self.log}")
            claim = self.claim()
        if claim is not None:
            os.close(claim)
        return postmaster is not None

    def _run(
        self, account: Account, claim: int, command: Sequence[str | Path], seconds: float
    ) -> subprocess.CompletedProcess[str]:
        try:
            return account.run(command, folder=self.folder, inherit=[claim], timeout=seconds)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ServerFailed(f"{command[0]}: cannot be run under uid {account.uid}: {error}") from error

    def _rotate_log(self) -> None:
        if self._log_size() > _LOG_LIMIT:
            self.log.replace(self.log.with_name("server.log.1"))

    def _log_size(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def _log_since(self, offset: int, lines: int = 15) -> str:
        if not self.log.exists():
            return ""
        with open(self.log, "rb") as file:
            file.seek(offset)
            text = file.read().decode(errors="replace")
        return "\n".join(text.splitlines()[-lines:])


def _lock(folder: Path) -> int | None:
    """Lock ``folder`` exclusively and return the descriptor; None while other processes hold the lock."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ServerFailed(f"{folder}: cannot be opened: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError as error:
        os.close(descriptor)
        raise ServerFailed(f"{folder}: cannot be locked: {error.strerror}; MODYN_HOME must be on a local disk") from error
    return descriptor
