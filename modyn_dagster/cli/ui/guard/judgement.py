"""Judgement of one request by its head: method, path and headers. A pure function of request and rules.

Browsers send requests to 127.0.0.1 on behalf of any page. They tell three things about them that a page cannot forge: ``Host``
(the name in the address bar, also one whose owner points it to 127.0.0.1), ``Origin`` and ``Sec-Fetch-Site`` (the page's origin).
"""

import base64
import binascii
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from modyn_dagster.cli.ui.guard.rules import Rules

_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES: Final = frozenset({"same-origin", "none"})
_JSON: Final = "application/json"
#: Types that a page may send to any server without asking it first (a form, ``fetch`` without CORS); empty: no type at all.
_FROM_ANY_PAGE: Final = frozenset({"", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})
_PORT: Final = re.compile(r":[0-9]*$")


class Refusal(NamedTuple):
    """Answer to a request that is not passed on; ``reason`` says what to do."""

    status: HTTPStatus
    reason: str


@dataclass(frozen=True, slots=True)
class Surface:
    """Peculiarities of a server.

    Attributes:
        only_json: POST with any other content type is refused; otherwise with one that a page can send unasked.
        reading_posts: paths at which POST only reads; the others are refused in read-only mode.
    """

    only_json: bool
    reading_posts: re.Pattern[str]


#: Mutations at ``/graphql`` are refused by the webserver itself, which is started read-only.
DAGSTER: Final = Surface(only_json=True, reading_posts=re.compile(r".*/graphql"))
#: Artifacts are uploaded as bytes; searches are POST.
MLFLOW: Final = Surface(only_json=False, reading_posts=re.compile(r".*/(graphql|search|search-[a-z-]+)"))


class Head:
    """Method, path and headers of a request or of the opening of a WebSocket, from its ASGI scope."""

    def __init__(self, scope: Mapping[str, Any]) -> None:
        # The opening of a WebSocket is a GET that leads to a channel in both directions.
        self.is_websocket = scope["type"] == "websocket"
        self.method: str = "GET" if self.is_websocket else scope["method"]
        self.path: str = scope["path"]
        self.has_query = bool(scope.get("query_string"))
        self._headers: Sequence[tuple[bytes, bytes]] = scope["headers"]

    def values(self, name: str) -> list[str]:
        """Values of a header, one for each time that it was sent."""
        wanted = name.encode()
        return [value.decode("latin-1").strip() for key, value in self._headers if key.lower() == wanted]

    def value(self, name: str) -> str:
        """Value of a header that is sent at most once; empty if absent, and values that contradict each other joined."""
        return ", ".join(self.values(name))


def judge(head: Head, rules: Rules, surface: Surface) -> Refusal | None:
    """Refusal of a request, or None if it may pass."""
    return (
        _foreign_host(head, rules)
        or _foreign_page(head, rules)
        or _unauthenticated(head, rules)
        or _by_get(head)
        or _by_form(head, surface)
        or _changing(head, rules, surface)
    )


def _foreign_host(head: Head, rules: Rules) -> Refusal | None:
    host = head.value("host").lower()
    if _PORT.sub("", host) in rules.hosts:
        return None
    return _forbidden(f"Host {host!r} is none of this server's names; add it to MODYN_UI_ALLOWED_HOSTS and start again")


def _foreign_page(head: Head, rules: Rules) -> Refusal | None:
    origin = head.value("origin").lower()
    if origin in rules.origins:
        return None
    if origin and not _is_same(origin, head.value("host").lower()):
        return _forbidden(f"pages of {origin!r} may send nothing here; add it to MODYN_UI_ALLOWED_ORIGINS if they are yours")
    site = head.value("sec-fetch-site").lower()
    if not site or site in _OWN_SITES or _is_followed_link(head):
        return None
    return _forbidden("a page of another server sent this request; open the address in the browser instead")


def _is_same(origin: str, host: str) -> bool:
    """Compare an origin with ``Host``. The scheme is left out: behind a proxy that ends TLS, only the browser knows it."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc == host


def _is_followed_link(head: Head) -> bool:
    to_page = (head.value("sec-fetch-mode"), head.value("sec-fetch-dest")) == ("navigate", "document")
    return to_page and head.method in ("GET", "HEAD") and not head.is_websocket


def _unauthenticated(head: Head, rules: Rules) -> Refusal | None:
    if rules.token is not None and not any(
        hmac.compare_digest(secret.encode(), rules.token.encode()) for secret in _secrets(head.value("authorization"))
    ):
        return Refusal(
            HTTPStatus.UNAUTHORIZED, "the token of MODYN_UI_TOKEN is missing: as password, or as Authorization: Bearer"
        )
    if rules.user_header is not None and not head.value(rules.user_header):
        reason = f"header {rules.user_header} is missing; come through the reverse proxy that sets it (MODYN_UI_USER_HEADER)"
        return Refusal(HTTPStatus.UNAUTHORIZED, reason)
    return None


def _secrets(authorization: str) -> list[str]:
    """Token of ``Authorization: Bearer``, or password of ``Basic``."""
    scheme, _, credentials = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return [credentials.strip()]
    if scheme.lower() != "basic":
        return []
    try:
        return [base64.b64decode(credentials, validate=True).decode("latin-1").partition(":")[2]]
    except binascii.Error:
        return []


def _by_get(head: Head) -> Refusal | None:
    """Refuse GraphQL in an address, where it could be a mutation; the page of queries has none there."""
    if head.is_websocket or head.method == "POST" or not head.has_query or not head.path.rstrip("/").endswith("/graphql"):
        return None
    return Refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"GraphQL in an address is refused; send it by POST as {_JSON}")


def _by_form(head: Head, surface: Surface) -> Refusal | None:
    content_type = head.value("content-type").partition(";")[0].strip().lower()
    is_wanted = content_type == _JSON if surface.only_json else content_type not in _FROM_ANY_PAGE
    if is_wanted or head.method in _READING:
        return None
    if not surface.only_json and head.method != "POST":  # a page is asked for its origin before it may send these
        return None
    return Refusal(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"{head.method} with content type {content_type!r} is refused; send {_JSON}"
    )


def _changing(head: Head, rules: Rules, surface: Surface) -> Refusal | None:
    if not rules.read_only or head.method in _READING:
        return None
    if head.method == "POST" and surface.reading_posts.fullmatch(head.path):
        return None
    return _forbidden("this server is read-only; unset MODYN_UI_READ_ONLY and start it again to change something")


def _forbidden(reason: str) -> Refusal:
    return Refusal(HTTPStatus.FORBIDDEN, reason)
