"""Roles: each can do its work and no more, and none of them can leave the databases."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.errors as pg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from modyn_dagster.catalog.access.authentication import as_uri
from modyn_dagster.catalog.access.roles import RoleName
from modyn_dagster.catalog.database.databases import create_databases, excessive_rights, health_of, upgrade
from modyn_dagster.catalog.database.engine import current_revision, open_engine, transaction
from modyn_dagster.catalog.database.urls import database_url, server_url
from modyn_dagster.catalog.datasets import partition_of
from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.catalog.embedded.listening import free_port
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.catalog.revisions import MIGRATIONS, head_revision
from modyn_dagster.errors import CatalogError, DatabaseDown
from modyn_dagster.settings import Settings
from modyn_dagster.spec.dataset import DatasetSpec
from tests.conftest import RunningServer

ROLES: tuple[RoleName, ...] = ("owner", "writer", "reader")
SPEC = DatasetSpec.model_validate(
    {"name": "words", "root": "words", "format": {"kind": "csv"}, "time": {"source": "column", "column": "t"}}
)
_OUTSIDE = {
    "program": "copy (select 1) to program 'id'",
    "file": "copy (select 1) to '/tmp/written-by-postgres'",
    "reading": "select pg_read_file('/etc/passwd')",
    "folders": "select pg_ls_dir('/')",
    "roles": "create role another superuser",
    "settings": "alter system set log_statement = 'all'",
    "passwords": "select rolpassword from pg_authid",
}
_OWNERS = "select distinct pg_get_userbyid(relowner) from pg_class where relnamespace = 'public'::regnamespace"


@contextmanager
def connected(url: sa.URL) -> Iterator[psycopg2.extensions.cursor]:
    with closing(psycopg2.connect(as_uri(url))) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        yield cursor


def value(url: sa.URL, statement: str) -> Any:
    with connected(url) as cursor:
        cursor.execute(statement)
        return [row[0] for row in cursor.fetchall()]


@pytest.mark.parametrize("statement", _OUTSIDE.values(), ids=_OUTSIDE)
def test_no_role_runs_programs_reads_files_or_makes_roles(postgres_server: RunningServer, statement: str) -> None:
    for role in ROLES:
        with (
            connected(postgres_server.embedded.url_of(role)) as cursor,
            pytest.raises((pg.InsufficientPrivilege, pg.UndefinedFile)),
        ):
            cursor.execute(statement)


def test_the_writer_registers_datasets_and_changes_no_schema(settings: Settings, engine: sa.Engine) -> None:
    with transaction(engine) as connection:
        row = ensure_dataset(connection, SPEC)
    url = database_url(settings, "modyn")
    assert value(url, _OWNERS) == ["modyn_owner"]
    leaf = partition_of(row.id)
    with connected(url) as cursor:
        cursor.execute(f"insert into {leaf} (key, time) values (1, now())")
        cursor.execute(f"delete from sample where dataset_id = {row.id}")
    refused = ("create table t (n int)", f"drop table {leaf}", f"truncate {leaf}", "alter table batch drop column error")
    for statement in (*refused, "create schema s", "grant select on batch to public"):
        with connected(url) as cursor, pytest.raises((pg.InsufficientPrivilege, psycopg2.Warning)):
            cursor.execute(statement)
            raise_notices(cursor)


def raise_notices(cursor: psycopg2.extensions.cursor) -> None:
    # Postgres grants nothing, with a warning, to who may grant nothing.
    for notice in cursor.connection.notices:
        raise psycopg2.Warning(notice)


def test_the_reader_sees_rows_and_changes_nothing(settings: Settings, engine: sa.Engine, postgres_server: RunningServer) -> None:
    with transaction(engine) as connection:
        row = ensure_dataset(connection, SPEC)
    embedded = replace(settings, home=postgres_server.embedded.home, postgres_url=None, postgres_owner_url=None)
    create_databases(embedded)
    url = database_url(embedded, "modyn", "reader")
    assert value(url, "select name from dataset") == ["words"]
    assert value(url, f"select count(*) from {partition_of(row.id)}") == [0]
    for statement in ("update dataset set name = 'x'", "delete from batch", "select add_sample_partition(7)"):
        with connected(url) as cursor, pytest.raises(pg.InsufficientPrivilege):
            cursor.execute(statement)
    with pytest.raises(psycopg2.OperationalError, match="permission denied for database"):
        psycopg2.connect(as_uri(database_url(embedded, "dagster", "reader")))


def test_dagster_and_mlflow_make_tables_in_their_own_databases(settings: Settings) -> None:
    create_databases(settings)
    create_databases(settings)
    for name in ("dagster", "mlflow"):
        with connected(database_url(settings, name)) as cursor:
            cursor.execute("create table theirs (n integer)")
            cursor.execute("insert into theirs values (1)")


def test_a_role_that_does_not_own_the_schema_is_told_whom_to_name(settings: Settings, owner: sa.Engine) -> None:
    with transaction(owner) as connection:
        connection.execute(sa.text("update alembic_version set version_num = '0100'"))
    writer = open_engine(settings)
    with pytest.raises(CatalogError, match="MODYN_POSTGRES_OWNER_URL"):
        upgrade(writer)
    writer.dispose()


def test_a_single_role_works_with_a_warning_and_a_superuser_with_a_louder_one(
    settings: Settings, postgres_server: RunningServer
) -> None:
    assert excessive_rights(settings) is None
    single = replace(settings, postgres_url=settings.postgres_owner_url, postgres_owner_url=None)
    create_databases(single)
    assert health_of(single).ready
    assert "also owns the schema" in str(health_of(single).warning)
    superuser = replace(single, postgres_url=as_uri(postgres_server.url))
    assert "is a superuser: with its password, programs run" in str(health_of(superuser).warning)


def as_an_early_version_left_it(server: EmbeddedPostgres, settings: Settings) -> None:
    """Databases of the superuser, a schema of revision 0100, no roles, and a state without them; the server runs on a port."""
    single = replace(settings, postgres_url=as_uri(server.start(free_port()).url))
    create_databases(single)
    engine = open_engine(single)
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with transaction(engine) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0100")
        connection.execute(sa.text("insert into dataset (name, spec) values ('old', '{}')"))
        connection.execute(sa.text("create table sample_1 partition of sample for values in (1)"))
    engine.dispose()
    for name in ("dagster", "mlflow"):
        with connected(database_url(single, name)) as cursor:
            cursor.execute("create table theirs (id serial primary key, n integer)")
            cursor.execute("create view seen as select n from theirs")
    with connected(server.url) as cursor:
        cursor.execute("drop role modyn_owner, modyn_writer, modyn_reader")
    state = json.loads((server.home / "postgres.json").read_text())
    kept = {name: state[name] for name in ("port", "user", "password", "folder")}
    (server.home / "postgres.json").write_text(json.dumps(kept))


@pytest.mark.soak("laws-data")
def test_a_home_of_an_early_version_gets_roles_and_a_socket_at_its_next_start(server: EmbeddedPostgres, tmp_path: Path) -> None:
    settings = Settings(tmp_path, server.home)
    as_an_early_version_left_it(server, settings)
    with pytest.raises(DatabaseDown, match=r"an early version.*`modyn-dagster db start`"):
        server_url(settings)
    # It still runs: the roles are made at once, the socket comes with the next start.
    assert not server.start().started_by_us
    assert server.url_of("writer").host == "127.0.0.1"
    server.stop()
    assert server.start().started_by_us
    assert server.url_of("writer").query["host"] == str(server.status().data.parent)
    owner, writer = open_engine(settings, "owner"), open_engine(settings)
    assert current_revision(writer) == "0100"
    create_databases(settings)
    upgrade(owner)
    assert current_revision(writer) == head_revision()
    with transaction(writer) as connection:
        assert list(connection.scalars(sa.text("select name from dataset"))) == ["old"]
        connection.execute(sa.text("insert into sample (dataset_id, key, time) values (1, 5, now())"))
        ensure_dataset(connection, SPEC)
    assert value(database_url(settings, "modyn"), _OWNERS) == ["modyn_owner"]
    for name in ("dagster", "mlflow"):
        assert value(database_url(settings, name), _OWNERS) == ["modyn_writer"]
        with connected(database_url(settings, name)) as cursor:
            cursor.execute("insert into theirs (n) values (1) returning id")
            cursor.execute("alter table theirs add column later integer")
    for engine in (owner, writer):
        engine.dispose()
