"""Debian's Postgres as an administrator would set it up: a server on a port of 127.0.0.1 that knows nothing of us."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from modyn_dagster.catalog.embedded.account import Account

PASSWORD: Final = "p@ss/w%rd: ü?#&"


def server_programs() -> Path | None:
    """Folder of the newest server programs; None without any."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


@contextmanager
def running_server(programs: Path, scratch: Path) -> Iterator[sa.URL]:
    """Address of the superuser ``admin`` of a new server, which is stopped at the end."""
    account = Account.for_server()
    folder = scratch / "their-server"
    account.make_folder(folder)
    (scratch / "password").write_text(PASSWORD)
    (scratch / "password").chmod(0o644)
    initdb: list[str | Path] = [programs / "initdb", "-D", folder, "-U", "admin", f"--pwfile={scratch / 'password'}"]
    assert account.run([*initdb, "--auth=scram-sha-256", "--encoding=LATIN1", "--locale=C"]).returncode == 0
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
    control: list[str | Path] = [programs / "pg_ctl", "-D", folder, "-w", "-l", folder / "log"]
    assert account.run([*control, "-o", options, "start"]).returncode == 0
    try:
        yield sa.URL.create("postgresql", "admin", PASSWORD, "127.0.0.1", port)
    finally:
        account.run([*control, "-m", "immediate", "stop"])
