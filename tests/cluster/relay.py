"""A Postgres server of this machine, reached by hosts of a network over TCP."""

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import sqlalchemy as sa

_PIECE: Final = 1 << 16


class _Relay(socketserver.ThreadingTCPServer):
    """Connections to a port, each of which leads to the server's Unix socket."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, path: str) -> None:
        self.path = path
        super().__init__((host, 0), _Connection)


class _Connection(socketserver.BaseRequestHandler):
    server: _Relay

    def handle(self) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(self.server.path)
            threading.Thread(target=_copy, args=(server, self.request), daemon=True).start()
            _copy(self.request, server)


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy until one side is closed, and end both."""
    with suppress(OSError):
        while piece := source.recv(_PIECE):
            target.sendall(piece)
    for side in (source, target):
        with suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)


@contextmanager
def relayed(host: str, server: sa.URL) -> Iterator[int]:
    """Port at an address of this machine that leads to a server on a Unix socket."""
    with _Relay(host, f"{server.query['host']}/.s.PGSQL.{server.port}") as relay:
        threading.Thread(target=relay.serve_forever, daemon=True).start()
        try:
            yield int(relay.server_address[1])
        finally:
            relay.shutdown()
