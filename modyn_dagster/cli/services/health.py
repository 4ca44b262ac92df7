"""Health of a service over HTTP: ``GET /health`` answers 200, or 503 while the service does not answer.

The server runs beside the service, in the process that started it, so it also tells of one that hangs. It says nothing but that,
and needs no password: whoever watches over containers sends none.
"""

import contextlib
import http.client
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from modyn_dagster.errors import ConfigError

PATH: Final = "/health"
#: An answer counts for so long: many who ask do not become many requests to the service.
_FRESH_SECONDS: Final = 1.0
_ASK_SECONDS: Final = 15.0
_IDLE_SECONDS: Final = 10.0
#: Longest time that the end of the server takes.
_POLL_SECONDS: Final = 0.05


class Health:
    """Answers of a service, asked one at a time, and kept for a second."""

    def __init__(self, service: str, answers: Callable[[], bool]) -> None:
        self.service = service
        self._answers = answers
        self._turn = threading.Lock()
        self._asked, self._answer = -_FRESH_SECONDS, False

    def is_healthy(self) -> bool:
        """True if the service answers as it should."""
        with self._turn:
            if time.monotonic() - self._asked >= _FRESH_SECONDS:
                try:
                    self._answer = self._answers()
                except Exception:  # noqa: BLE001 - a service that cannot be asked is not healthy, whatever the reason
                    self._answer = False
                self._asked = time.monotonic()
            return self._answer


class _Server(ThreadingHTTPServer):
    """Server whose clients may go away at any moment, as probes do."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Leave a connection that its client has cut out of the service's output."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def health_server(health: Health, host: str, port: int) -> Iterator[int]:
    """Serve the health of a service in a thread, until the block ends; yields the port. ``ConfigError`` if it is taken."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # A client that sends nothing keeps its thread for no longer.
        timeout = _IDLE_SECONDS

        def do_GET(self) -> None:
            if self.path != PATH:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            healthy = health.is_healthy()
            body = json.dumps({"service": health.service, "healthy": healthy}).encode()
            self.send_response(HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE)
            self.send_header("Content-Type", "application/json")
            self.send_header("Cache-Control", "no-store")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Leave the output to the service."""

    try:
        server = _Server((host, port), Handler)
    except OSError as error:
        rule = f"cannot be listened on at {host} ({error.strerror}); name another one, or 0 for none"
        raise ConfigError("modyn-dagster services run", "--health-port", port, rule) from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=[_POLL_SECONDS], name="health", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ask(host: str, port: int) -> bool:
    """Ask a health server; False also where none answers."""
    connection = http.client.HTTPConnection(host, port, timeout=_ASK_SECONDS)
    try:
        connection.request("GET", PATH)
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
