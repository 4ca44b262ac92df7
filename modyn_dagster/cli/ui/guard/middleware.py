"""The guard as ASGI middleware: it stands before the whole application, so that no route and no WebSocket is left out."""

from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any

from modyn_dagster.cli.ui.guard.judgement import Head, Refusal, Surface, judge
from modyn_dagster.cli.ui.guard.rules import Rules

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_POLICY_VIOLATION = 1008


class Guard:
    """Application that passes on what the rules allow and answers the rest itself.

    Pages are passed on with ``X-Frame-Options``: in a frame of another page, clicks could be made to hit them.
    """

    def __init__(self, app: Application, rules: Rules, surface: Surface) -> None:
        self._app = app
        self._rules = rules
        self._surface = surface

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or WebSocket; the server's start and end are passed on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        refusal = judge(Head(scope), self._rules, self._surface)
        if refusal is None:
            await self._app(scope, receive, _unframed(send))
        elif scope["type"] == "websocket":
            # Before it was accepted: the server answers 403.
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": ""})
        else:
            await _answer(refusal, send)


def _unframed(send: Send) -> Send:
    async def with_header(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", []))
            if not any(name.lower() == b"x-frame-options" for name, _ in headers):
                message["headers"] = [*headers, (b"x-frame-options", b"SAMEORIGIN")]
        await send(message)

    return with_header


async def _answer(refusal: Refusal, send: Send) -> None:
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-store"),
    ]
    if refusal.status == HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b'Basic realm="modyn-dagster", charset="UTF-8"'))
    await send({"type": "http.response.start", "status": int(refusal.status), "headers": headers})
    await send({"type": "http.response.body", "body": f"{refusal.reason}\n".encode()})
