"""The embedded server of one ``MODYN_HOME``: start, stop, status."""

import os
import secrets
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import psycopg2
from sqlalchemy import URL

from modyn_dagster.catalog.embedded.account import Account
from modyn_dagster.catalog.embedded.binaries import Binaries, find_binaries, reachable
from modyn_dagster.catalog.embedded.cluster import Cluster
from modyn_dagster.catalog.embedded.state import FALLBACK_FOLDER, ServerState, choose_folder, exclusive, load_state, save_state
from modyn_dagster.errors import ConfigError, DatabaseDown, ServerFailed

# Below the ports that Linux gives to outgoing connections, so a restart finds its port free again.
_PORTS: Final = range(20_000, 32_000)
_ATTEMPTS: Final = 5
_CONNECT_SECONDS: Final = 10
# A server that was just killed keeps its process id for a while.
_DYING_SECONDS: Final = 5


@dataclass(frozen=True, slots=True)
class StartedServer:
    """A server that accepts connections; ``url`` addresses its maintenance database, and its text hides the password."""

    url: URL
    started_by_us: bool


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """Process, port and files of a server, as known without a connection."""

    pid: int | None
    port: int
    data: Path
    log: Path


class EmbeddedPostgres:
    """The Postgres server of ``home``, with the programs in ``pg_bin`` or those that are installed.

    The server outlives the process that starts it, until ``stop``. At most one runs per home.
    """

    def __init__(self, home: Path, pg_bin: Path | None = None) -> None:
        self.home = home
        self.pg_bin = pg_bin

    @property
    def url(self) -> URL:
        """Address of the maintenance database; ``DatabaseDown`` when the server was never started."""
        return self._state().url

    def is_running(self) -> bool:
        """Tell whether the server's first process is alive."""
        state = load_state(self.home)
        return state is not None and self._cluster(state).postmaster() is not None

    def status(self) -> ServerStatus:
        """Process, port and files; ``DatabaseDown`` when the server was never started."""
        state = self._state()
        cluster = self._cluster(state)
        postmaster = cluster.postmaster()
        return ServerStatus(postmaster.pid if postmaster else None, state.port, cluster.data, cluster.log)

    def start(self, port: int | None = None) -> StartedServer:
        """Start the server unless it runs, and wait until it accepts connections. The first start makes an empty one.

        Args:
            port: port of 127.0.0.1; None for the one it had before, or a free one.

        Raises:
            ServerFailed: the start failed; the message ends with the server's last log lines.
            ConfigError: the port is not free, or the server runs on another one.
        """
        with exclusive(self.home):
            state = load_state(self.home) or self._new_state()
            cluster = self._cluster(state)
            account = Account.for_server(owned=cluster.folder)
            account.make_folder(cluster.folder)
            while (claim := cluster.claim()) is None:
                if (url := self._running(cluster, state, port)) is not None:
                    return StartedServer(url, started_by_us=False)
            try:
                return StartedServer(self._start(cluster, account, claim, state, port), started_by_us=True)
            finally:
                os.close(claim)

    def stop(self) -> bool:
        """Shut the server down, ending its sessions; False when it did not run."""
        state = load_state(self.home)
        if state is None:
            return False
        with exclusive(self.home):
            return self._cluster(state).stop()

    def _running(self, cluster: Cluster, state: ServerState, port: int | None) -> URL | None:
        """Address of the server that runs already; None when it has just ended."""
        if port not in (None, state.port):
            rule = f"must be {state.port}, where the server runs already; `modyn-dagster db stop` first to change it"
            raise ConfigError("db start", "port", port, rule)
        try:
            return _checked(state)
        except ServerFailed:
            if cluster.ends_within(_DYING_SECONDS):
                return None
            raise

    def _start(self, cluster: Cluster, account: Account, claim: int, state: ServerState, port: int | None) -> URL:
        if port is not None and not port_is_free(port):
            raise ConfigError("db start", "port", port, "must be a free port of 127.0.0.1")
        binaries = reachable(self._binaries(cluster), account, FALLBACK_FOLDER / "programs")
        if cluster.major is None:
            cluster.create(binaries, account, claim, state.user, state.password)
        for retries_left in reversed(range(_ATTEMPTS)):
            state = replace(state, port=port or (state.port if port_is_free(state.port) else _free_port()))
            save_state(self.home, state)
            try:
                cluster.launch(binaries, account, claim, state.port)
                break
            except ServerFailed:
                # Another process may have taken the port since the check; then the next one is tried.
                if port is not None or port_is_free(state.port) or not retries_left:
                    raise
        return _checked(state)

    def _new_state(self) -> ServerState:
        folder = choose_folder(self.home, Account.for_server())
        # The password is saved before the server exists, so the next start continues one that was cut off.
        state = ServerState(_free_port(), "postgres", secrets.token_urlsafe(24), folder)
        save_state(self.home, state)
        return state

    def _binaries(self, cluster: Cluster) -> Binaries:
        binaries = find_binaries(self.pg_bin, cluster.major)
        if cluster.major not in (None, binaries.major):
            raise ServerFailed(
                f"{cluster.data} was made by Postgres {cluster.major}, the programs in {binaries.folder} are "
                f"{binaries.version}; name a folder with those of {cluster.major} in MODYN_PG_BIN, or take the data "
                "along by a backup (docs/postgres.md)"
            )
        return binaries

    def _cluster(self, state: ServerState) -> Cluster:
        return Cluster((self.home / state.folder).resolve())

    def _state(self) -> ServerState:
        state = load_state(self.home)
        if state is None:
            raise DatabaseDown(f"127.0.0.1 for {self.home}", "it was never started")
        return state


def port_is_free(port: int) -> bool:
    """Tell whether no process listens on a port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _free_port() -> int:
    ports = list(_PORTS)
    while ports:
        port = ports.pop(secrets.randbelow(len(ports)))
        if port_is_free(port):
            return port
    raise ServerFailed(f"no free port of 127.0.0.1 from {_PORTS.start} to {_PORTS.stop - 1}; choose one with --port")


def _checked(state: ServerState) -> URL:
    """Connect once with the stored password, and return the address."""
    try:
        psycopg2.connect(
            host="127.0.0.1",
            port=state.port,
            user=state.user,
            password=state.password,
            dbname="postgres",
            connect_timeout=_CONNECT_SECONDS,
        ).close()
    except psycopg2.OperationalError as error:
        raise ServerFailed(f"the server on port {state.port} cannot be used: {error}") from error
    return state.url
