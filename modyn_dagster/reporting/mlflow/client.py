"""Clients of MLflow: opened once per process, without long waits, by several processes even before its tables exist."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from modyn_dagster.catalog.access.authentication import as_uri, authenticated, display_address
from modyn_dagster.errors import TrackingError, without_secrets
from modyn_dagster.imports import require

if TYPE_CHECKING:
    from mlflow import MlflowClient

_CONNECT_SECONDS: Final = 5
#: Number of the advisory lock in MLflow's database; nobody else uses it there.
_SETUP_LOCK: Final = 0x4D4F44594E
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
#: Databases that MLflow can store its runs in.
_DATABASES: Final = frozenset({"postgresql", "mysql", "mssql", "sqlite"})
#: By default MLflow waits minutes for a server that is down, prints to the terminal and sends telemetry.
_ENVIRONMENT: Final = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}


@cache
def open_client(uri: str) -> MlflowClient:
    """Open a client of a tracking server (``http://…``) or of its database (``postgresql://…``, much faster).

    Missing tables are created; several processes may do so at once. Raises ``TrackingError`` within seconds if nothing answers,
    ``MissingPackage`` without MLflow.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with tracking_errors(address_of(uri)):
        from mlflow import MlflowClient

        # MLflow prints a traceback of every error it raises; all of them become TrackingError.
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
        if _is_server(uri):
            _require_answer(uri)
            return MlflowClient(tracking_uri=uri)
        if uri.startswith("postgresql"):
            with _setup_lock(protected := as_uri(authenticated(sa.make_url(uri)))):
                return MlflowClient(tracking_uri=protected)
        return MlflowClient(tracking_uri=uri)


@contextmanager
def tracking_errors(address: str) -> Iterator[None]:
    """Turn exceptions of MLflow, its database and its server into ``TrackingError``; ``MissingPackage`` without MLflow."""
    require("mlflow", "tracking")
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as error:
        raise TrackingError(address, _first_line(error)) from error


def address_of(uri: str) -> str:
    """Tracking URI for messages, without password and options.

    Raises ``TrackingError`` unless it is the URI of a server or a database.
    """
    try:
        return _parsed_address(uri)
    except (SQLAlchemyError, ValueError):
        # The URI may hold a password: neither it nor the parser's error is shown.
        rule = "the tracking URI must look like http://host:port or postgresql://user:password@host:port/mlflow"
        raise TrackingError("an address that is none", rule) from None


def _parsed_address(uri: str) -> str:
    if _is_server(uri):
        parts = urlsplit(uri)
        return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "") + parts.path
    url = sa.make_url(uri)
    if url.get_backend_name() not in _DATABASES:
        raise ValueError(url.drivername)
    return display_address(url)


def _is_server(uri: str) -> bool:
    return uri.startswith(("http://", "https://"))


def _require_answer(uri: str) -> None:
    parts = urlsplit(uri)
    port = parts.port or _DEFAULT_PORTS[parts.scheme]
    socket.create_connection((parts.hostname or "", port), timeout=_CONNECT_SECONDS).close()


@contextmanager
def _setup_lock(uri: str) -> Iterator[None]:
    """Keep other processes from creating the tables too, which MLflow's store does not do.

    Connecting also fails fast for a missing database, where the store would try for an hour.
    """
    engine = sa.create_engine(uri, poolclass=sa.NullPool, connect_args={"connect_timeout": _CONNECT_SECONDS})
    with engine.begin() as connection:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_SETUP_LOCK)))
        yield


def _first_line(error: Exception) -> str:
    cause = getattr(error, "orig", None) or error
    return without_secrets(next((line for line in str(cause).strip().splitlines() if line.strip()), type(error).__name__))
