"""Reports of comparisons as pages of Dagster's server, so that a link on an asset's page opens them."""

import asyncio
import re
from http import HTTPStatus
from pathlib import Path
from typing import Final

from modyn_dagster.cli.ui.guard.middleware import Application, Receive, Scope, Send
from modyn_dagster.settings import REPORT_PAGES

#: Names of datasets have no other characters.
_NAME: Final = re.compile(r"[A-Za-z0-9_]{1,100}\.html")
#: A report needs its own script and style and nothing else. In a sandbox it is a page of another origin: whatever it held, it
#: could not use this server.
_POLICY: Final = (
    b"sandbox allow-scripts allow-downloads allow-popups allow-modals; "
    b"default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)


class Reports:
    """Application that serves the files of one folder below ``REPORT_PAGES`` and passes on every other request."""

    def __init__(self, app: Application, folder: Path) -> None:
        self._app = app
        self._folder = folder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or WebSocket."""
        path = str(scope.get("path", ""))
        if scope["type"] != "http" or not path.startswith(f"{REPORT_PAGES}/"):
            await self._app(scope, receive, send)
            return
        if scope["method"] not in ("GET", "HEAD"):
            await _answer(send, HTTPStatus.METHOD_NOT_ALLOWED, b"a report can only be read\n")
            return
        content = await asyncio.to_thread(self._read, path.removeprefix(f"{REPORT_PAGES}/"))
        if content is None:
            missing = b"there is no such report; materialize the comparison of the dataset first\n"
            await _answer(send, HTTPStatus.NOT_FOUND, missing)
            return
        await _answer(send, HTTPStatus.OK, content if scope["method"] == "GET" else b"", kind=b"text/html; charset=utf-8")

    def _read(self, name: str) -> bytes | None:
        """Content of a report; None for a name of no report, and for a link that leads out of the folder."""
        if not _NAME.fullmatch(name):
            return None
        file = (self._folder / name).resolve()
        if file.parent != self._folder.resolve() or not file.is_file():
            return None
        return file.read_bytes()


async def _answer(send: Send, status: HTTPStatus, body: bytes, *, kind: bytes = b"text/plain; charset=utf-8") -> None:
    headers = [
        (b"content-type", kind),
        (b"content-security-policy", _POLICY),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-cache"),
    ]
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": body})
