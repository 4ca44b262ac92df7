"""Connections and transactions: lost servers, other errors, and other schemas."""

import os
import signal

import psycopg2
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, OperationalError

from modyn_dagster.catalog.database.engine import current_revision, open_engine, require_current_schema, transaction
from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.errors import DatabaseDown, SchemaOutdated
from modyn_dagster.settings import Settings

SECRET = "no-one-may-read-this"
NAMED = sa.text("select application_name from pg_stat_activity where pid = pg_backend_pid()")


@pytest.fixture
def table(owner: sa.Engine) -> sa.Table:
    table = sa.Table("number", sa.MetaData(), sa.Column("n", sa.Integer, primary_key=True))
    with transaction(owner) as connection:
        table.create(connection)
    return table


def numbers(engine: sa.Engine, table: sa.Table) -> list[int]:
    with transaction(engine) as connection:
        return sorted(connection.scalars(sa.select(table.c.n)))


def end_session(engine: sa.Engine, connection: sa.Connection) -> None:
    pid = connection.scalar(sa.select(sa.func.pg_backend_pid()))
    with transaction(engine) as other:
        other.execute(sa.select(sa.func.pg_terminate_backend(pid, 5000)))


def test_a_transaction_commits_at_its_end_and_rolls_back_on_any_exception(engine: sa.Engine, table: sa.Table) -> None:
    with transaction(engine) as connection:
        connection.execute(table.insert().values(n=1))
    with pytest.raises(KeyboardInterrupt), transaction(engine) as connection:
        connection.execute(table.insert().values(n=2))
        raise KeyboardInterrupt
    assert numbers(engine, table) == [1]


def test_sessions_speak_utc_and_say_who_they_are(engine: sa.Engine) -> None:
    with transaction(engine) as connection:
        assert connection.scalar(sa.text("show timezone")) == "UTC"
        assert connection.scalar(NAMED) == "modyn-dagster"


def test_options_of_a_given_address_are_kept(engine: sa.Engine) -> None:
    other = open_engine(engine.url.update_query_dict({"options": "-c statement_timeout=4321"}))
    with transaction(other) as connection:
        assert connection.scalar(sa.text("show statement_timeout")) == "4321ms"
        assert connection.scalar(sa.text("show timezone")) == "UTC"
    other.dispose()


def test_no_server_is_an_error_that_names_address_and_command_but_no_password() -> None:
    engine = open_engine(sa.make_url(f"postgresql+psycopg2://someone:{SECRET}@127.0.0.1:1/modyn"))
    with pytest.raises(DatabaseDown) as caught, transaction(engine):
        pass
    for part in ("someone@127.0.0.1:1/modyn", "Connection refused", "modyn-dagster db start", "MODYN_POSTGRES_URL"):
        assert part in str(caught.value)
    assert SECRET not in str(caught.value)
    engine.dispose()


def test_a_wrong_password_is_an_error_that_does_not_show_it(engine: sa.Engine) -> None:
    wrong = open_engine(engine.url.set(password=SECRET))
    with pytest.raises(DatabaseDown, match="password authentication failed") as caught, transaction(wrong):
        pass
    assert SECRET not in str(caught.value)
    wrong.dispose()


def test_a_database_that_was_never_made_is_an_error_that_names_the_upgrade(engine: sa.Engine) -> None:
    missing = open_engine(engine.url.set(database="nowhere"))
    with pytest.raises(SchemaOutdated, match=r"revision none.*modyn-dagster db upgrade"), transaction(missing):
        pass
    missing.dispose()


def test_a_connection_lost_in_a_statement_is_database_down_and_nothing_is_committed(engine: sa.Engine, table: sa.Table) -> None:
    with pytest.raises(DatabaseDown), transaction(engine) as connection:
        connection.execute(table.insert().values(n=1))
        end_session(engine, connection)
        connection.execute(table.insert().values(n=2))
    assert numbers(engine, table) == []


def test_a_connection_lost_before_the_commit_is_database_down_and_nothing_is_committed(
    engine: sa.Engine, table: sa.Table
) -> None:
    with pytest.raises(DatabaseDown), transaction(engine) as connection:
        connection.execute(table.insert().values(n=1))
        end_session(engine, connection)
    assert numbers(engine, table) == []


def test_a_connection_lost_under_a_plain_cursor_is_database_down(engine: sa.Engine, table: sa.Table) -> None:
    with pytest.raises(DatabaseDown), transaction(engine) as connection:
        cursor = connection.connection.cursor()
        end_session(engine, connection)
        cursor.execute("insert into number values (1)")
    assert numbers(engine, table) == []


def test_other_errors_stay_what_they_are(engine: sa.Engine, table: sa.Table) -> None:
    with pytest.raises(IntegrityError), transaction(engine) as connection:
        connection.execute(table.insert(), [{"n": 1}, {"n": 1}])
    with pytest.raises(OperationalError, match="statement timeout"), transaction(engine) as connection:
        connection.execute(sa.text("set local statement_timeout = 1"))
        connection.execute(sa.text("select pg_sleep(5)"))
    with pytest.raises(psycopg2.errors.UndefinedTable), transaction(engine) as connection:
        connection.connection.cursor().execute("select * from nowhere")


@pytest.mark.soak("laws-data")
def test_an_open_engine_works_on_after_the_server_was_killed_and_started_again(server: EmbeddedPostgres) -> None:
    engine = open_engine(server.start().url)
    with transaction(engine) as connection:
        connection.execute(sa.text("create table kept (n integer)"))
    with pytest.raises(DatabaseDown) as caught, transaction(engine) as connection:
        connection.execute(sa.text("insert into kept values (1)"))
        pid = server.status().pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        connection.execute(sa.text("select pg_sleep(5)"))
    assert str(engine.url.password) not in str(caught.value)
    with pytest.raises(DatabaseDown, match="db start"), transaction(engine):
        pass
    server.start()
    with transaction(engine) as connection:
        assert connection.scalar(sa.text("select count(*) from kept")) == 0
    engine.dispose()


def test_the_migrated_schema_is_accepted(engine: sa.Engine) -> None:
    require_current_schema(engine)


@pytest.mark.parametrize(
    ("revision", "remedy"),
    [
        (None, "run `modyn-dagster db upgrade`"),
        ("9999", "update modyn-dagster"),
        ("0003", r"cannot be upgraded; start anew: `modyn-dagster db stop`, move MODYN_HOME away .* `modyn-dagster db start`"),
    ],
)
def test_another_schema_is_refused_with_the_remedy(engine: sa.Engine, revision: str | None, remedy: str) -> None:
    with transaction(engine) as connection:
        connection.execute(sa.text("delete from alembic_version"))
        if revision:
            connection.execute(sa.text("insert into alembic_version values (:revision)"), {"revision": revision})
    assert current_revision(engine) == revision
    with pytest.raises(SchemaOutdated, match=remedy) as caught:
        require_current_schema(engine)
    assert caught.value.found == revision


def test_opening_an_engine_connects_to_nothing(settings: Settings) -> None:
    engine = open_engine(settings)
    assert engine.url.database == f"{settings.database_prefix}modyn"
    assert "Connections in pool: 0" in engine.pool.status()
    engine.dispose()
