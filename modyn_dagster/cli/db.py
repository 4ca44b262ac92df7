"""``modyn-dagster db``: the Postgres server and its databases."""

import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict

import click

from modyn_dagster.catalog.access.authentication import as_uri, display_address
from modyn_dagster.catalog.access.roles import DATABASES, DatabaseName, RoleName
from modyn_dagster.catalog.database.databases import (
    Health,
    create_databases,
    existing_databases,
    health_of,
    upgrade,
    warnings_of,
)
from modyn_dagster.catalog.database.engine import current_revision, open_engine
from modyn_dagster.catalog.database.urls import child_environment, database_url, server_url
from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.catalog.revisions import outdated
from modyn_dagster.cli.console import say
from modyn_dagster.private_files import open_to_others
from modyn_dagster.settings import Settings


@click.group()
def db() -> None:
    """Start, stop and upgrade the database.

    One Postgres server holds the databases modyn, dagster and mlflow. Without MODYN_POSTGRES_URL it is an embedded one
    with its files in MODYN_HOME; it runs until `db stop`.
    """


@db.command()
@click.option("--port", type=click.IntRange(1, 65_535), help="Port of 127.0.0.1; default: the last one, or a Unix socket.")
def start(port: int | None) -> None:
    """Start the embedded server unless it runs.

    The first start makes an empty server with a generated password.
    """
    settings = Settings.from_environment()
    if settings.postgres_url is not None:
        say(f"MODYN_POSTGRES_URL is set: using {display_address(server_url(settings))}, nothing to start")
        return
    started = EmbeddedPostgres(settings.home, settings.pg_bin).start(port)
    say(f"Postgres {'started' if started.started_by_us else 'runs already'}: {display_address(server_url(settings))}")
    if (warning := open_to_others(settings.home)) is not None:
        say(f"warning: {warning}", err=True)
    if not all(existing_databases(settings).values()):
        say("its databases are still to be made: run `modyn-dagster db upgrade`")


@db.command()
def stop() -> None:
    """Stop the embedded server; sessions are ended, nothing is lost."""
    settings = Settings.from_environment()
    if settings.postgres_url is not None:
        say(f"MODYN_POSTGRES_URL is set: {display_address(server_url(settings))} is not ours to stop")
        return
    stopped = EmbeddedPostgres(settings.home, settings.pg_bin).stop()
    say("Postgres stopped" if stopped else "Postgres was not running")


@db.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(as_json: bool) -> None:
    """Show the server, its databases and the schema's revision.

    The exit code is 1 unless the server answers and its schema is the one this version needs.
    """
    health = health_of(Settings.from_environment())
    if as_json:
        click.echo(json.dumps({**asdict(health), "answers": health.answers, "ready": health.ready}, default=str, indent=2))
    else:
        for name, value in _lines(health):
            click.echo(f"{name:<10} {value}")
    sys.exit(0 if health.ready else 1)


@db.command(name="upgrade")
def upgrade_command() -> None:
    """Create the databases that are missing and bring the schema of modyn up to date."""
    settings = Settings.from_environment()
    for name in create_databases(settings):
        say(f"created database {name}")
    engine = open_engine(settings, "owner")
    try:
        before = current_revision(engine)
        upgrade(engine)
        after = current_revision(engine)
    finally:
        engine.dispose()
    moved = f"upgraded from {before or 'nothing'} to {after}" if before != after else f"up to date at {after}"
    say(f"schema of {display_address(engine.url)}: {moved}")
    _warn_of_rights(settings)


@db.command()
def env() -> None:
    """Print the variables that other programs need, for a shell: eval "$(modyn-dagster db env)".

    The output holds the password of the server.
    """
    for name, value in child_environment(Settings.from_environment()).items():
        click.echo(f"export {name}={shlex.quote(value)}")


@db.command()
@click.argument("database", type=click.Choice(DATABASES), default="modyn")
@click.option("--role", type=click.Choice(["reader", "writer", "owner"]), default="reader", show_default=True)
def url(database: DatabaseName, role: RoleName) -> None:
    """Print the address of a database for psql, pg_dump and other programs.

    The reader sees the database modyn only, and changes nothing. The output holds the password of the role.
    """
    click.echo(as_uri(database_url(Settings.from_environment(), database, role)))


def _warn_of_rights(settings: Settings) -> None:
    for warning in filter(None, warnings_of(settings)):
        say(f"warning: {warning}", err=True)


def _lines(health: Health) -> Iterator[tuple[str, str]]:
    yield "server", health.address if health.problem is None else health.problem
    if health.server is not None:
        yield "process", str(health.server.pid or "none")
        yield "data", str(health.server.data)
        yield "log", str(health.server.log)
    for name, exists in health.databases.items():
        yield name, "there" if exists else "missing; run `modyn-dagster db upgrade`"
    if health.answers and health.revision == health.expected_revision:
        yield "schema", f"up to date at {health.revision}"
    elif health.answers:
        yield "schema", str(outdated(health.revision))
    for warning in filter(None, (health.warning, health.statements)):
        yield "warning", warning
