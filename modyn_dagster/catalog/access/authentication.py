"""Authentication of connections: the server proves that it knows the password before it learns anything.

While a server is down its port is free, and whoever listens there may ask for the password in clear text; libpq would send it.
``require_auth`` forbids that. SCRAM proves the password to both sides without sending it.
"""

from functools import cache
from typing import Final

from sqlalchemy import URL

from modyn_dagster.errors import CatalogError

OPTION: Final = "require_auth"
_PROVEN: Final = "scram-sha-256"
#: Without a password in the address: a certificate, a peer's account, or a password from a file, which is never sent in clear.
_PROVEN_OR_NONE: Final = "scram-sha-256,none"
_LIBPQ_SINCE: Final = 16
#: Beginning of libpq's message when a server asks for something else than ``require_auth`` allows.
REFUSED: Final = "authentication method requirement"


def authenticated(url: URL) -> URL:
    """Return the address of a Postgres database with ``require_auth``, unless it has that option already.

    Raises ``CatalogError`` where psycopg2 uses a libpq without the option.
    """
    require_libpq()
    if OPTION in url.query:
        return url
    has_password = bool(url.password) or "password" in url.query
    return url.update_query_dict({OPTION: _PROVEN if has_password else _PROVEN_OR_NONE})


def as_uri(url: URL) -> str:
    """Render an address, password included, for libpq and for other programs; both decode ``%20``, but libpq no ``+``."""
    address, mark, query = url.set(drivername="postgresql").render_as_string(hide_password=False).partition("?")
    return address + mark + query.replace("+", "%20")


def display_address(url: URL) -> str:
    """Address for messages, without password and options; a Unix socket shows its folder."""
    socket = url.query.get("host", "")
    host = url.host or (socket if isinstance(socket, str) else ",".join(socket)) or "localhost"
    user = f"{url.username}@" if url.username else ""
    port = f":{url.port}" if url.port else ""
    return f"{user}{host}{port}/{url.database or ''}"


@cache
def require_libpq() -> None:
    """Raise ``CatalogError`` where psycopg2 uses a libpq that would send a password to anybody who asks."""
    from psycopg2.extensions import libpq_version

    if (major := libpq_version() // 10_000) < _LIBPQ_SINCE:
        raise CatalogError(
            f"psycopg2 uses libpq {major} here, which sends passwords to any server that asks for them; "
            f"expected libpq {_LIBPQ_SINCE} or newer, as in the wheel: `pip install 'psycopg2-binary>=2.9.9'`"
        )
