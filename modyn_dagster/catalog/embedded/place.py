"""Where the files of an embedded server lie: in ``MODYN_HOME`` if its account can go there, else under ``/var/lib``."""

from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Final

from modyn_dagster.catalog.embedded.account import Account
from modyn_dagster.catalog.embedded.cluster import Cluster
from modyn_dagster.errors import ServerFailed

OUTSIDE: Final = Path("/var/lib/modyn-dagster")
_INSIDE: Final = "postgres"


def choose_folder(home: Path, account: Account) -> str:
    """Make the folder of a new server and return it: ``postgres`` inside ``home``, or an absolute path.

    Only folders of our own are made, owned and closed; those of the user keep their permissions.
    """
    inside = home / _INSIDE
    if Cluster(inside).major is not None:
        raise ServerFailed(
            f"{inside} holds a server, but {home / 'postgres.json'} with its password is missing; "
            "restore the file, or move the folder away to begin with an empty server"
        )
    try:
        account.make_folder(inside)
        if account.can_write(inside):
            return _INSIDE
        inside.rmdir()
        return str(_outside_folder(home, account))
    except OSError as error:
        raise ServerFailed(f"{home}: no folder for Postgres can be made: {error}") from error


def _outside_folder(home: Path, account: Account) -> Path:
    folder = OUTSIDE / blake2b(bytes(home), digest_size=8).hexdigest()
    if folder.exists():
        _set_aside(folder)
    OUTSIDE.mkdir(parents=True, exist_ok=True)
    OUTSIDE.chmod(0o755)
    account.make_folder(folder)
    (folder / "home").write_text(f"{home}\n")
    if not account.can_write(folder):
        raise ServerFailed(f"{folder}: the account with uid {account.uid} cannot write there")
    return folder


def _set_aside(folder: Path) -> None:
    """Keep the files of a home that was deleted; a new home at the same path begins empty."""
    Cluster(folder).stop()
    free = next(name for n in count(1) if not (name := folder.with_name(f"{folder.name}.{n}")).exists())
    folder.rename(free)
