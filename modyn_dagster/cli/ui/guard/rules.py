"""Rules of the guard, read from the environment (docs/security.md)."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from modyn_dagster.errors import ConfigError
from modyn_dagster.private_files import secret_setting

#: Names that reach only this machine; no web page can make a browser resolve them to something else.
LOCAL: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})

_HOSTS: Final = "MODYN_UI_ALLOWED_HOSTS"
_ORIGINS: Final = "MODYN_UI_ALLOWED_ORIGINS"
_TOKEN: Final = "MODYN_UI_TOKEN"  # noqa: S105 - the name of the variable
_USER_HEADER: Final = "MODYN_UI_USER_HEADER"
_READ_ONLY: Final = "MODYN_UI_READ_ONLY"

_HOST: Final = re.compile(r"[a-z0-9_]([a-z0-9._-]*[a-z0-9_])?|\[[0-9a-f:.]+\]")
_ORIGIN: Final = re.compile(rf"https?://(?:{_HOST.pattern})(?::[0-9]{{1,5}})?")
_TOKEN_SHAPE: Final = re.compile(r"[!-~]{16,}")
_HEADER: Final = re.compile(r"[a-z0-9-]+")
_SWITCH: Final = {"": False, "0": False, "false": False, "no": False, "1": True, "true": True, "yes": True}


@dataclass(frozen=True, slots=True)
class Rules:
    """Requests that a server accepts.

    Attributes:
        hosts: names without port that ``Host`` may have, in lower case; IPv6 addresses in brackets.
        origins: origins of other servers whose pages may send requests, as ``https://portal.example.com``.
        token: secret that every request must carry; None: none is asked for.
        user_header: header in which a reverse proxy names the user, in lower case; requests without it are refused.
        read_only: refuse whatever changes state.
    """

    hosts: frozenset[str] = LOCAL
    origins: frozenset[str] = frozenset()
    token: str | None = field(default=None, repr=False)
    user_header: str | None = None
    read_only: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], host: str = "127.0.0.1") -> Self:
        """Rules of a server that listens on ``host``; empty variables count as absent.

        Raises ``ConfigError`` for a variable that is malformed: a rule must never be weaker than it was meant to be.
        """
        hosts = _several(
            environment, _HOSTS, _HOST, "expected names or addresses without port, separated by commas; no wildcards"
        )
        origins = _several(
            environment, _ORIGINS, _ORIGIN, "expected origins such as https://portal.example.com, separated by commas"
        )
        token = secret_setting(environment, _TOKEN)
        if token is not None and not _TOKEN_SHAPE.fullmatch(token):
            rule = "expected at least 16 visible ASCII characters; `openssl rand -hex 24` makes some"
            raise ConfigError("environment", _TOKEN, f"{len(token)} characters", rule)
        user_header = environment.get(_USER_HEADER, "").lower() or None
        if user_header is not None and not _HEADER.fullmatch(user_header):
            raise ConfigError("environment", _USER_HEADER, user_header, "expected the name of a header, such as X-Forwarded-User")
        switch = environment.get(_READ_ONLY, "").lower()
        if switch not in _SWITCH:
            raise ConfigError("environment", _READ_ONLY, switch, "expected true or false")
        return cls(LOCAL | frozenset(_listening(host)) | hosts, origins, token, user_header, _SWITCH[switch])

    @property
    def passing_headers(self) -> dict[str, str]:
        """Headers that let our own requests, for example whether a server answers, pass the authentication."""
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        return headers if self.user_header is None else {**headers, self.user_header: "modyn-dagster"}


def _several(environment: Mapping[str, str], name: str, shape: re.Pattern[str], rule: str) -> frozenset[str]:
    values = [part.strip().lower() for part in environment.get(name, "").split(",") if part.strip()]
    if wrong := [value for value in values if not shape.fullmatch(value)]:
        raise ConfigError("environment", name, wrong[0], rule)
    return frozenset(values)


def _listening(host: str) -> Iterable[str]:
    """Name of the address that a server listens on; nobody types that of all addresses."""
    if host in ("", "0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        return ()
    return (f"[{host}]" if ":" in host else host.lower(),)
