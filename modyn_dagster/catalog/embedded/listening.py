"""Places to listen: a Unix socket in the folder of a server, or a port of 127.0.0.1.

Nobody else can listen in a folder that is closed to others, so a socket is preferred. A port is for homes whose path is too long
for a socket, for file systems without sockets, and for programs that need one (``db start --port``).
"""

import os
import secrets
import socket
from pathlib import Path
from typing import Final

from modyn_dagster.errors import ServerFailed

HOST: Final = "127.0.0.1"
# Below the ports that Linux gives to outgoing connections, so a restart finds its port free again.
_PORTS: Final = range(20_000, 32_000)
#: Longest path of a socket on Linux, with the zero at its end.
_PATH_BYTES: Final = 108


def can_hold_socket(folder: Path) -> bool:
    """Tell whether clients can name and reach a socket in ``folder``: its path is short, and this process may enter."""
    path = os.fsencode(folder / f".s.PGSQL.{_PORTS.stop}")
    # Clients take a comma for the end of a host, and addresses are UTF-8.
    nameable = b"," not in path and path.decode(errors="replace").encode() == path
    return nameable and len(path) < _PATH_BYTES and os.access(folder, os.W_OK | os.X_OK)


def listening_settings(folder: Path, port: int, *, on_socket: bool) -> dict[str, str]:
    """Settings of a server that listens on its socket in ``folder``, or on ``port`` of 127.0.0.1."""
    quoted = f'"{str(folder).replace(chr(34), chr(34) * 2)}"'
    return {
        "listen_addresses": "" if on_socket else HOST,
        "port": str(port),
        "unix_socket_directories": quoted if on_socket else "",
        "unix_socket_permissions": "0700",
    }


def port_is_free(port: int) -> bool:
    """Tell whether no process listens on a port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_port() -> int:
    """Choose a free port of 127.0.0.1; ``ServerFailed`` where there is none."""
    ports = list(_PORTS)
    while ports:
        port = ports.pop(secrets.randbelow(len(ports)))
        if port_is_free(port):
            return port
    raise ServerFailed(f"no free port of {HOST} from {_PORTS.start} to {_PORTS.stop - 1}; choose one with --port")
