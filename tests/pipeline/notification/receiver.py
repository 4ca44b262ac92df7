"""A receiver of webhooks on 127.0.0.1, as somebody else would write it, and an event for it."""

import base64
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from modyn_dagster.pipeline.event import Event

Answer = Callable[[BaseHTTPRequestHandler], None]

EVENT = Event(
    name="score_below accuracy 2024-01-03T00:00:00+00:00",
    kind="score_below",
    pipeline="shop",
    dataset="orders",
    run=3,
    trigger="000003-000007",
    at=datetime(2024, 1, 4, 12, tzinfo=UTC),
    text="shop: accuracy 0.7 of the active model is below 0.8",
    reason="40 samples",
    score=0.7,
    threshold=0.8,
    metric="accuracy",
    interval=(datetime(2024, 1, 3, tzinfo=UTC), datetime(2024, 1, 4, tzinfo=UTC)),
)


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Message
    body: bytes


@dataclass
class Receiver:
    """Requests that arrived, and the answers that the next ones get: the last one again and again."""

    port: int
    requests: list[Request] = field(default_factory=list)
    answers: list[int | Answer] = field(default_factory=lambda: [204])
    #: Set at the end, for answers that wait.
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.origin}/events/of-the-shop"

    def next_answer(self) -> int | Answer:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def receiving(context: Any = None) -> Iterator[Receiver]:
    """Serve until the end of the block; with an SSL context, by HTTPS."""

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            receiver.requests.append(Request(self.command, self.path, self.headers, body))
            answer = receiver.next_answer()
            if callable(answer):
                answer(self)
                return
            self.send_response(answer)
            self.send_header("content-length", "0")
            self.end_headers()

        do_POST = do_GET = do_PUT = handle_any  # noqa: N815 - names of the standard library

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Senders that have gone away are no error here."""

    with Server(("127.0.0.1", 0), Handler) as server:
        receiver = Receiver(server.server_address[1])
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        serving = threading.Thread(target=server.serve_forever, args=[0.02])
        serving.start()
        try:
            yield receiver
        finally:
            receiver.over.set()
            server.shutdown()
            serving.join()


def silent(receiver: Receiver) -> Answer:
    """An answer that does not come before the end."""

    def wait(handler: BaseHTTPRequestHandler) -> None:
        receiver.over.wait()

    return wait


def is_authentic(request: Request, key: bytes) -> bool:
    """Verify a signature as the specification of Standard Webhooks says, with another library's HMAC."""
    version, _, signature = request.headers["webhook-signature"].partition(",")
    mac = HMAC(key, SHA256())
    mac.update(request.headers["webhook-id"].encode())
    mac.update(b"." + request.headers["webhook-timestamp"].encode() + b".")
    mac.update(request.body)
    return version == "v1" and base64.b64encode(mac.finalize()).decode() == signature
