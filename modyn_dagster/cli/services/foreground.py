"""A service in the foreground: its program, its health, and a clean end by a signal."""

import contextlib
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from modyn_dagster.catalog.database.databases import existing_databases
from modyn_dagster.catalog.database.engine import open_engine, require_current_schema
from modyn_dagster.catalog.revisions import outdated
from modyn_dagster.cli.console import say
from modyn_dagster.cli.services.health import PATH, Health, health_server
from modyn_dagster.cli.ui.code_location import CodeLocation
from modyn_dagster.cli.ui.guard.rules import LOCAL
from modyn_dagster.cli.ui.processes import Service, Services, stop_leftovers
from modyn_dagster.cli.ui.services import guard_rules
from modyn_dagster.cli.ui.serving import exclusive_lock, interrupted_by_signals
from modyn_dagster.errors import ConfigError
from modyn_dagster.private_files import open_to_others
from modyn_dagster.settings import Settings

#: Below ``MODYN_HOME``: the socket of the code location, and a lock for each service and machine.
FOLDER: Final = "services"


@dataclass(frozen=True, slots=True)
class Watch:
    """Address of the health server, port 0 for none, and seconds that the service gets to end after a signal."""

    host: str
    port: int
    grace: float


def run_in_foreground(settings: Settings, location: CodeLocation, service: Service, watch: Watch, url: str) -> None:
    """Run a service until it ends or a signal comes; its output is this process's.

    At the end none of its processes is left, runs in progress included.

    Raises:
        AlreadyRunning: it runs on this machine for this ``MODYN_HOME``.
        DatabaseDown, SchemaOutdated: Postgres does not answer, or `modyn-dagster db upgrade` has to be run first.
        ServiceEnded: it has ended by itself.
    """
    folder = settings.home / FOLDER / f"{service.name}@{socket.gethostname()}"
    with interrupted_by_signals(), suppress(KeyboardInterrupt):
        require_databases(settings)
        with exclusive_lock(folder, f"services run {service.name}") as announce:
            if (warning := open_to_others(settings.home)) is not None:
                say(f"warning: {warning}", err=True)
            if leftovers := stop_leftovers(folder):
                say(f"ended {leftovers} processes that a killed `services run {service.name}` had left behind", err=True)
            announce({service.name: url})
            services = Services(folder, location.folder, foreground=True)
            try:
                services.start(service)
                with _watched(Health(service.name, service.answers), watch):
                    services.watch()
            finally:
                services.stop(watch.grace)
    say(f"{service.name} stopped", err=True)


def require_databases(settings: Settings) -> None:
    """Raise ``DatabaseDown`` or ``SchemaOutdated`` unless the three databases are there, with the current schema."""
    engine = open_engine(settings)
    try:
        require_current_schema(engine)
    finally:
        engine.dispose()
    if not all(existing_databases(settings).values()):
        raise outdated(None)


def require_password(environment: Mapping[str, str], host: str) -> None:
    """Refuse pages that other machines reach without a password. ``ConfigError`` names the variables."""
    rules = guard_rules(environment, host)
    if host in LOCAL or rules.token is not None or rules.user_header is not None:
        return
    rule = (
        "is reached from other machines, so requests must carry something that pages and strangers do not have: "
        "set MODYN_UI_TOKEN or MODYN_UI_TOKEN_FILE, or MODYN_UI_USER_HEADER behind a reverse proxy (docs/security.md)"
    )
    raise ConfigError("modyn-dagster services run", "--host", host, rule)


@contextlib.contextmanager
def _watched(health: Health, watch: Watch) -> Iterator[None]:
    if watch.port == 0:
        yield
        return
    with health_server(health, watch.host, watch.port) as port:
        say(f"health of {health.service}: http://{watch.host}:{port}{PATH}", err=True)
        yield
