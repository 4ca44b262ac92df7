"""State of the embedded server between commands (``MODYN_HOME/postgres.json``), and the choice of its folder."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

from sqlalchemy import URL

from modyn_dagster.catalog.access.authentication import authenticated
from modyn_dagster.catalog.access.roles import EMBEDDED, RoleName
from modyn_dagster.catalog.embedded.account import Account
from modyn_dagster.catalog.embedded.cluster import Cluster
from modyn_dagster.catalog.embedded.listening import HOST
from modyn_dagster.errors import DatabaseDown, ServerFailed, WriteFailed
from modyn_dagster.private_files import make_home
from modyn_dagster.storage import atomic_write
from modyn_dagster.values.digest import bytes_digest


@dataclass(frozen=True, slots=True)
class ServerState:
    """Address, roles and folder of the server; only the owner may read the file, because it holds the passwords.

    Attributes:
        port: port of 127.0.0.1, or the number in the name of the socket.
        user, password: of the superuser, who makes roles and nothing else.
        folder: holds the data directory and the log; a relative one is inside ``MODYN_HOME``, which can then be moved.
        on_socket: the server listens on a Unix socket in ``folder``, or on the port; None before its first start and in files of
            early versions, which used the port.
        passwords: of the roles that work on the databases; empty in files of early versions, until the next start.
    """

    port: int
    user: str
    password: str
    folder: str
    on_socket: bool | None = None
    passwords: Mapping[str, str] = field(default_factory=dict)

    def url(self, home: Path, role: RoleName | None = None) -> URL:
        """Address of the maintenance database for a role; None for the superuser.

        Raises ``DatabaseDown`` for a role that is still to be made.
        """
        user, password = self.user, self.password
        if role is not None:
            if role not in self.passwords:
                raise DatabaseDown(f"{HOST}:{self.port}", "an early version of modyn-dagster started it, without roles")
            user, password = getattr(EMBEDDED, role), self.passwords[role]
        place = {"host": str((home / self.folder).resolve())} if self.on_socket else {}
        host = None if self.on_socket else HOST
        url = URL.create("postgresql+psycopg2", user, password, host, self.port, "postgres", place)
        return authenticated(url)


def load_state(home: Path) -> ServerState | None:
    """Read the state of the server of ``home``; None when there was never one."""
    path = state_path(home)
    try:
        return ServerState(**json.loads(path.read_text()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise ServerFailed(f"{path}: belongs to another user; act as that user, or set MODYN_HOME elsewhere") from error
    except (ValueError, TypeError) as error:
        raise ServerFailed(f"{path}: is damaged ({error}); restore it from a backup") from error


def save_state(home: Path, state: ServerState) -> None:
    """Replace the state atomically. Equal content keeps the file, and so its owner when root works on a user's home."""
    if state == load_state(home):
        return
    with atomic_write(state_path(home), mode=0o600) as file:
        file.write(json.dumps(asdict(state), indent=1).encode())


def state_path(home: Path) -> Path:
    """The state file of ``home``."""
    return home / "postgres.json"


@contextmanager
def exclusive(home: Path) -> Iterator[None]:
    """Lock the server of ``home``: one process at a time sets it up, starts or stops it. The lock ends with the process."""
    path = home / "postgres.lock"
    try:
        make_home(home)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise WriteFailed(path, error.strerror or str(error)) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


#: Parent of server folders where the server's account cannot write in ``MODYN_HOME``.
FALLBACK_FOLDER: Final = Path("/var/lib/modyn-dagster")
_HOME_FOLDER: Final = "postgres"


def choose_folder(home: Path, account: Account) -> str:
    """Make the folder of a new server and return its path: ``postgres`` inside ``home``, or an absolute one.

    Only new folders get an owner and permissions; folders of the user keep theirs.
    """
    inside = home / _HOME_FOLDER
    if Cluster(inside).major is not None:
        raise ServerFailed(
            f"{inside} holds a server, but {home / 'postgres.json'} with its password is missing; "
            "restore the file, or move the folder away to begin with an empty server"
        )
    try:
        account.make_folder(inside)
        if account.can_write(inside):
            return _HOME_FOLDER
        inside.rmdir()
        return str(_fallback_folder(home, account))
    except OSError as error:
        raise ServerFailed(f"{home}: no folder for Postgres can be made: {error}") from error


def _fallback_folder(home: Path, account: Account) -> Path:
    folder = FALLBACK_FOLDER / bytes_digest(bytes(home), 8)
    if folder.exists():
        _set_aside(folder)
    FALLBACK_FOLDER.mkdir(parents=True, exist_ok=True)
    FALLBACK_FOLDER.chmod(0o755)
    account.make_folder(folder)
    (folder / "home").write_text(f"{home}\n")
    if not account.can_write(folder):
        raise ServerFailed(f"{folder}: the account with uid {account.uid} cannot write there")
    return folder


def _set_aside(folder: Path) -> None:
    """Rename the folder of a deleted home to keep its files; a new home at the same path begins empty."""
    Cluster(folder).stop()
    free = next(name for n in count(1) if not (name := folder.with_name(f"{folder.name}.{n}")).exists())
    folder.rename(free)
