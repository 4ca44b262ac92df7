"""Role of statements: made where somebody may, and an error that says what to run where nobody did."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg2
import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.access.authentication import as_uri
from modyn_dagster.catalog.access.statement_role import (
    STATEMENT,
    make_statement_role,
    remedy,
    require_statement_role,
    statement_role_problem,
)
from modyn_dagster.catalog.database.databases import create_databases, health_of, warnings_of
from modyn_dagster.catalog.database.engine import open_engine
from modyn_dagster.errors import CatalogError
from modyn_dagster.settings import Settings
from tests.conftest import RunningServer
from tests.debian_postgres import running_server, server_programs

ATTRIBUTES = "rolcanlogin, rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls"
GRANTS = "select count(*) from pg_class, aclexplode(relacl) where grantee = 'modyn_statement'::regrole"


def test_the_embedded_server_has_the_role_without_a_right_of_its_own_and_lends_it_to_the_writer_alone(
    engine: sa.Engine, owner: sa.Engine
) -> None:
    with engine.connect() as conn:
        assert statement_role_problem(conn) is None
        found = conn.exec_driver_sql(f"select {ATTRIBUTES} from pg_roles where rolname = '{STATEMENT}'").one()
        assert not any(found)
        assert conn.exec_driver_sql(GRANTS).scalar_one() == 0
    with owner.connect() as conn, pytest.raises(CatalogError) as raised:
        require_statement_role(conn)
    assert "'modyn_owner' may not take on the role 'modyn_statement'" in str(raised.value)
    assert 'create role modyn_statement nologin; grant modyn_statement to "modyn_owner";' in str(raised.value)


def test_an_owner_who_may_not_make_roles_leaves_the_transaction_as_it_was(settings: Settings) -> None:
    with closing(psycopg2.connect(str(settings.postgres_owner_url))) as connection, connection.cursor() as cursor:
        cursor.execute("create temporary table mine (n int)")
        assert make_statement_role(cursor, "modyn_reader") is False
        cursor.execute("select count(*) from mine")
        assert cursor.fetchone() == (0,)
        assert make_statement_role(cursor, "modyn_writer") is True


def test_status_warns_of_a_server_without_the_role(settings: Settings) -> None:
    assert warnings_of(settings) == (None, None)
    single = replace(settings, postgres_url=settings.postgres_owner_url, postgres_owner_url=None)
    create_databases(single)
    assert "may not take on the role" in str(health_of(single).statements)
    assert health_of(single).ready, "everything else works"


def test_a_superuser_needs_no_membership(postgres_server: RunningServer, settings: Settings) -> None:
    superuser = replace(settings, postgres_url=as_uri(postgres_server.url), postgres_owner_url=None)
    assert warnings_of(superuser)[1] is None


@pytest.fixture
def administrator(scratch: Path) -> Iterator[sa.Engine]:
    """Superuser of Debian's server, with an owner and a writer that were made long ago."""
    programs = server_programs()
    if programs is None:
        pytest.skip("needs Debian's Postgres: apt-get install postgresql")
    with running_server(programs, scratch) as url:
        engine = sa.create_engine(url.set(database="postgres"), isolation_level="AUTOCOMMIT")
        run(engine, "create role the_owner login createdb password 'owner'; create role the_writer login password 'writer'")
        yield engine
        engine.dispose()


def run(administrator: sa.Engine, statements: str) -> None:
    with administrator.connect() as conn:
        for statement in filter(str.strip, statements.split(";")):
            conn.exec_driver_sql(statement)


@pytest.mark.process
def test_an_existing_server_gets_the_role_from_whoever_may_make_it(administrator: sa.Engine, scratch: Path) -> None:
    writer, owner = (as_uri(administrator.url.set(username=f"the_{role}", password=role)) for role in ("writer", "owner"))
    existing = Settings(scratch, scratch / "home", postgres_url=writer, postgres_owner_url=owner)
    create_databases(existing)
    _, problem = warnings_of(existing)
    assert "there is no role 'modyn_statement'" in str(problem)
    assert remedy("the_writer") in str(problem)
    run(administrator, remedy("the_writer"))
    assert warnings_of(existing) == (None, None)
    # An owner who may make roles does it in `db upgrade`.
    run(administrator, "drop role modyn_statement; alter role the_owner createrole")
    create_databases(existing)
    create_databases(existing)
    assert warnings_of(existing) == (None, None)
    engine = open_engine(existing)
    with engine.connect() as conn:
        require_statement_role(conn)
    engine.dispose()
