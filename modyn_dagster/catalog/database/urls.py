"""Addresses of the server and its databases, for connections, messages and child processes."""

import re
from typing import Final, Literal

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.errors import ConfigError
from modyn_dagster.settings import Settings

DatabaseName = Literal["modyn", "dagster", "mlflow"]
DATABASES: Final[tuple[DatabaseName, ...]] = ("modyn", "dagster", "mlflow")
_DRIVER: Final = "postgresql+psycopg2"


def server_url(settings: Settings) -> URL:
    """Address of the maintenance database on the server of ``MODYN_POSTGRES_URL``, or on the embedded one.

    Raises ``DatabaseDown`` when the embedded server was never started, ``ConfigError`` for an invalid address.
    """
    if settings.postgres_url is None:
        return EmbeddedPostgres(settings.home, settings.pg_bin).url
    try:
        url = make_url(settings.postgres_url)
    except (ArgumentError, ValueError):
        # The text may hold a password, so neither it nor the parser's error is shown.
        raise _bad_address("...") from None
    if url.get_backend_name() not in {"postgresql", "postgres"}:
        raise _bad_address(url.drivername)
    return url.set(drivername=_DRIVER, database=url.database or "postgres")


def database_url(settings: Settings, database: DatabaseName) -> URL:
    """Address of one of the three databases on that server."""
    name = settings.database_prefix + database
    if not re.fullmatch(r"\w{1,63}", name, re.ASCII):
        rule = "must be letters, digits and underscores, at most 50"
        raise ConfigError("environment", "MODYN_DATABASE_PREFIX", settings.database_prefix, rule)
    return server_url(settings).set(database=name)


def display_address(url: URL) -> str:
    """Address for messages, without password and options."""
    user = f"{url.username}@" if url.username else ""
    port = f":{url.port}" if url.port else ""
    return f"{user}{url.host or 'localhost'}{port}/{url.database or ''}"


def child_environment(settings: Settings) -> dict[str, str]:
    """Environment variables for processes of Dagster and MLflow: these settings and the addresses of their databases.

    The values hold passwords.
    """
    return settings.environment() | {
        "DAGSTER_PG_URL": _without_driver(database_url(settings, "dagster")),
        "MODYN_MLFLOW_URI": _without_driver(database_url(settings, "mlflow")),
    }


def _without_driver(url: URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


def _bad_address(address: str) -> ConfigError:
    return ConfigError("environment", "MODYN_POSTGRES_URL", address, "must look like postgresql://user:password@host:port")
