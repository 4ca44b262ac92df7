"""One data directory and the server over it: make, launch, stop."""

import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from modyn_dagster.catalog.embedded.account import Account
from modyn_dagster.catalog.embedded.binaries import Binaries
from modyn_dagster.catalog.embedded.processes import (
    Postmaster,
    clear_stale_pid_file,
    cluster_name,
    postmaster_of,
    processes_naming,
    processes_of,
    shut_down,
    wait_until,
)
from modyn_dagster.errors import ServerFailed

# A crash of a large database is repaired from its log before the server accepts connections.
_START_SECONDS = 120
_STOP_SECONDS = 60
_LOG_LIMIT = 16 << 20
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
    """The folder of one server: ``data`` and ``server.log``, owned by the account it runs under."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "server.log"

    @property
    def major(self) -> int | None:
        """The Postgres version that made the data directory; None when there is none yet."""
        try:
            return int((self.data / "PG_VERSION").read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def postmaster(self) -> Postmaster | None:
        """The running server, if any."""
        return postmaster_of(self.data)

    def create(self, binaries: Binaries, account: Account, user: str, password: str) -> None:
        """Make the data directory; it appears complete or not at all."""
        unfinished, secret = self.folder / "data.new", self.folder / "password.new"
        try:
            account.make_folder(self.folder)
            # An initdb goes on when the process that started it is killed.
            if not wait_until(lambda: not processes_naming(unfinished), _START_SECONDS):
                raise ServerFailed(f"{unfinished}: processes {processes_naming(unfinished)} still use it")
            shutil.rmtree(unfinished, ignore_errors=True)
            secret.unlink(missing_ok=True)
            with open(secret, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(password)
            account.own(secret)
            options: list[str | Path] = ["-D", unfinished, f"--username={user}", f"--pwfile={secret}"]
            options += ["--auth-host=scram-sha-256", "--auth-local=scram-sha-256"]
            options += ["--encoding=UTF8", "--locale=C", "--data-checksums"]
            result = self._run(account, [binaries["initdb"], *options], _START_SECONDS)
            if result.returncode != 0:
                raise ServerFailed(f"{self.data}: initdb failed: {result.stderr.strip()}")
            with open(unfinished / "postgresql.conf", "a") as configuration:
                configuration.write(_SETTINGS)
            unfinished.rename(self.data)
        except OSError as error:
            raise ServerFailed(f"{self.data}: cannot be made: {error}") from error
        finally:
            secret.unlink(missing_ok=True)

    def launch(self, binaries: Binaries, account: Account, port: int) -> None:
        """Start the server on ``port`` of 127.0.0.1 and wait until it accepts connections.

        Raises ``ServerFailed`` with what the server wrote to its log.
        """
        clear_stale_pid_file(self.data)
        self._rotate_log()
        seen = self._log_size()
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": "",
            "cluster_name": cluster_name(self.data),
        }
        options = shlex.join(part for name, value in settings.items() for part in ("-c", f"{name}={value}"))
        # Names relative to the folder: pg_ctl hands them to a shell, and the path of a home may hold anything.
        command = ["start", "-D", self.data.name, "-l", self.log.name, "-w", "-t", str(_START_SECONDS), "-o", options]
        result = self._run(account, [binaries["pg_ctl"], *command], _START_SECONDS + 30)
        if result.returncode != 0:
            said = self._log_since(seen) or result.stderr.strip()
            raise ServerFailed(f"{self.data}: the server did not start; {self.log} says:\n{said}")

    def gets_ready(self) -> bool:
        """Whether a server runs; one that is being launched or ends, whoever did that, is waited for."""

        def settled() -> bool:
            postmaster = self.postmaster()
            return postmaster.ready if postmaster else not processes_of(self.data)

        if not wait_until(settled, _START_SECONDS):
            said = self._log_since(0)
            raise ServerFailed(
                f"{self.data}: processes {processes_of(self.data)} neither serve it nor end; {self.log} says:\n{said}"
            )
        return self.postmaster() is not None

    def ends_within(self, seconds: float) -> bool:
        """Wait for the end of a server that is being stopped or was killed, to the last process."""
        return wait_until(lambda: not processes_of(self.data), seconds)

    def stop(self) -> bool:
        """Shut the server down, ending its sessions; False when none ran."""
        postmaster = self.postmaster()
        if postmaster is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            shut_down(postmaster.pid)
        if not self.ends_within(_STOP_SECONDS):
            raise ServerFailed(f"{self.data}: the server (process {postmaster.pid}) did not stop; see {self.log}")
        return True

    def _run(self, account: Account, command: Sequence[str | Path], seconds: float) -> subprocess.CompletedProcess[str]:
        try:
            return account.run(command, folder=self.folder, timeout=seconds)
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
