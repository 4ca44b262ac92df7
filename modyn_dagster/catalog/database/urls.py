"""Addresses of the server and its databases, for connections and child processes; every role has its own."""

import re
from typing import Final

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from modyn_dagster.catalog.access.authentication import as_uri, authenticated
from modyn_dagster.catalog.access.roles import EMBEDDED, DatabaseName, RoleName, Roles
from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.errors import ConfigError
from modyn_dagster.imports import is_installed
from modyn_dagster.private_files import without_files
from modyn_dagster.settings import Settings

_DRIVER: Final = "postgresql+psycopg2"
_URL: Final = "MODYN_POSTGRES_URL"
_OWNER_URL: Final = "MODYN_POSTGRES_OWNER_URL"


def server_url(settings: Settings, role: RoleName = "writer") -> URL:
    """Address of the maintenance database for a role, on the server of ``MODYN_POSTGRES_URL`` or on the embedded one.

    On a server of one's own the owner is that of ``MODYN_POSTGRES_OWNER_URL``, by default the writer, who is that of
    ``MODYN_POSTGRES_URL``.

    Raises:
        DatabaseDown: the embedded server was never started, or only by a version without roles.
        ConfigError: an address is invalid, or a reader is asked for on a server of one's own.
    """
    if settings.postgres_url is None:
        return EmbeddedPostgres(settings.home, settings.pg_bin).url_of(role)
    if role == "reader":
        rule = "names no role for reading; make one with `create role` and connect with its own address (docs/postgres.md)"
        raise ConfigError("environment", _URL, "...", rule)
    if role == "owner" and settings.postgres_owner_url is not None:
        return _parsed(_OWNER_URL, settings.postgres_owner_url)
    return _parsed(_URL, settings.postgres_url)


def database_url(settings: Settings, database: DatabaseName, role: RoleName = "writer") -> URL:
    """Address of one of the three databases on that server, for a role."""
    name = settings.database_prefix + database
    if not re.fullmatch(r"\w{1,63}", name, re.ASCII):
        rule = "must be letters, digits and underscores, at most 50"
        raise ConfigError("environment", "MODYN_DATABASE_PREFIX", settings.database_prefix, rule)
    return server_url(settings, role).set(database=name)


def roles_of(settings: Settings) -> Roles:
    """Names of the roles on the server; the same name twice on a server of one's own with a single role."""
    if settings.postgres_url is None:
        return EMBEDDED
    owner, writer = (server_url(settings, role).username or "" for role in ("owner", "writer"))
    return Roles(owner, writer)


def child_environment(settings: Settings) -> dict[str, str]:
    """Environment variables for processes of Dagster and MLflow: these settings and the addresses of their databases.

    The values hold passwords. Without the extra ``mlflow`` there is no address of MLflow, and nothing is tracked.
    """
    addresses = {"DAGSTER_PG_URL": as_uri(database_url(settings, "dagster"))}
    if is_installed("mlflow"):
        addresses["MODYN_MLFLOW_URI"] = as_uri(database_url(settings, "mlflow"))
    return settings.environment() | addresses | without_files(addresses)


def service_environment(settings: Settings) -> dict[str, str]:
    """``child_environment`` for a program that stays: the owner of the schemas is none of its business."""
    return child_environment(settings) | {_OWNER_URL: ""} | without_files({_OWNER_URL: ""})


def _parsed(variable: str, address: str) -> URL:
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        # The text may hold a password, so neither it nor the parser's error is shown.
        raise _bad_address(variable, "...") from None
    if url.get_backend_name() not in {"postgresql", "postgres"}:
        raise _bad_address(variable, url.drivername)
    return authenticated(url.set(drivername=_DRIVER, database=url.database or "postgres"))


def _bad_address(variable: str, address: str) -> ConfigError:
    return ConfigError("environment", variable, address, "must look like postgresql://user:password@host:port")
