"""The embedded server of one ``MODYN_HOME``: start, stop, status."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import psycopg2
from sqlalchemy import URL

from modyn_dagster.catalog.access.authentication import as_uri, display_address
from modyn_dagster.catalog.access.roles import RoleName
from modyn_dagster.catalog.embedded.account import Account
from modyn_dagster.catalog.embedded.binaries import Binaries, find_binaries, reachable
from modyn_dagster.catalog.embedded.cluster import Cluster
from modyn_dagster.catalog.embedded.listening import can_hold_socket, free_port, port_is_free
from modyn_dagster.catalog.embedded.role_setup import new_password, new_passwords, set_up_roles
from modyn_dagster.catalog.embedded.state import FALLBACK_FOLDER, ServerState, choose_folder, exclusive, load_state, save_state
from modyn_dagster.errors import ConfigError, DatabaseDown, ServerFailed

_ATTEMPTS: Final = 5
_CONNECT_SECONDS: Final = 10
# Part of the server's message on a file system without Unix sockets.
_NO_SOCKET: Final = "Unix socket"
# A server that was just killed keeps its process id for a while.
_DYING_SECONDS: Final = 5


@dataclass(frozen=True, slots=True)
class StartedServer:
    """A server that accepts connections; ``url`` is its maintenance database for the superuser; its text hides the password."""

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
        """Address of the maintenance database for the superuser; ``DatabaseDown`` when the server was never started."""
        return self._state().url(self.home)

    def url_of(self, role: RoleName) -> URL:
        """Address of the maintenance database for a role; ``DatabaseDown`` when the role or the server was never made."""
        return self._state().url(self.home, role)

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
            port: port of 127.0.0.1; None for the one it was given before, else a Unix socket where its folder can hold
                one, else a free port.

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
                if self._is_usable(cluster, state, port):
                    return StartedServer(self._with_roles(state).url(self.home), started_by_us=False)
            try:
                state = self._start(cluster, account, claim, state, port)
                return StartedServer(self._with_roles(state).url(self.home), started_by_us=True)
            finally:
                os.close(claim)

    def stop(self) -> bool:
        """Shut the server down, ending its sessions; False when it did not run."""
        state = load_state(self.home)
        if state is None:
            return False
        with exclusive(self.home):
            return self._cluster(state).stop()

    def _is_usable(self, cluster: Cluster, state: ServerState, port: int | None) -> bool:
        """Tell whether the server that runs accepts our password; False when it has just ended."""
        if port is not None and (state.on_socket or port != state.port):
            place = "its socket" if state.on_socket else str(state.port)
            rule = f"must be {place}, where the server runs already; `modyn-dagster db stop` first to change it"
            raise ConfigError("db start", "port", port, rule)
        try:
            _connected(state.url(self.home)).close()
        except ServerFailed:
            if cluster.ends_within(_DYING_SECONDS):
                return False
            raise
        return True

    def _start(self, cluster: Cluster, account: Account, claim: int, state: ServerState, port: int | None) -> ServerState:
        if port is not None and not port_is_free(port):
            raise ConfigError("db start", "port", port, "must be a free port of 127.0.0.1")
        binaries = reachable(self._binaries(cluster), account, FALLBACK_FOLDER / "programs")
        if cluster.major is None:
            cluster.create(binaries, account, claim, state.user, state.password)
        on_socket = port is None and state.on_socket is not False and can_hold_socket(cluster.folder)
        for retries_left in reversed(range(_ATTEMPTS)):
            usable = on_socket or port_is_free(state.port)
            state = replace(state, on_socket=on_socket, port=port or (state.port if usable else free_port()))
            save_state(self.home, state)
            try:
                cluster.launch(binaries, account, claim, state.port, on_socket=on_socket)
                break
            except ServerFailed as error:
                if on_socket and _NO_SOCKET in str(error):
                    on_socket = False
                # Another process may have taken the port since the check; then the next one is tried.
                elif on_socket or port is not None or port_is_free(state.port) or not retries_left:
                    raise
        return state

    def _with_roles(self, state: ServerState) -> ServerState:
        """Make the roles with the passwords of the state, and give them the databases that an early version made."""
        state = replace(state, passwords=state.passwords or new_passwords())
        # Saved before the roles exist, so the next start continues one that was cut off.
        save_state(self.home, state)
        set_up_roles(lambda database: _connected(state.url(self.home).set(database=database)), state.passwords)
        return state

    def _new_state(self) -> ServerState:
        folder = choose_folder(self.home, Account.for_server())
        # The password is saved before the server exists, so the next start continues one that was cut off.
        state = ServerState(free_port(), "postgres", new_password(), folder)
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


def _connected(url: URL) -> psycopg2.extensions.connection:
    """Connect to the server that was started or found, with the stored password."""
    try:
        return psycopg2.connect(as_uri(url), connect_timeout=_CONNECT_SECONDS)
    except psycopg2.OperationalError as error:
        raise ServerFailed(f"the server at {display_address(url)} cannot be used: {error}") from error
