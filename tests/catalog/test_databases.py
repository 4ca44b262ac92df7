"""Creation and health of the three databases on one server."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.database.databases import create_databases, existing_databases
from modyn_dagster.catalog.database.engine import open_engine, transaction
from modyn_dagster.catalog.database.urls import database_url, server_url
from modyn_dagster.errors import CatalogError
from modyn_dagster.settings import Settings
from tests.conftest import RunningServer


def test_missing_databases_are_made_and_existing_ones_left_alone(settings: Settings) -> None:
    prefix = settings.database_prefix
    assert existing_databases(settings) == {f"{prefix}modyn": True, f"{prefix}dagster": False, f"{prefix}mlflow": False}
    assert create_databases(settings) == [f"{prefix}dagster", f"{prefix}mlflow"]
    assert create_databases(settings) == []
    assert all(existing_databases(settings).values())


def test_processes_that_create_at_once_make_each_database_once(settings: Settings) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: create_databases(settings), range(4)))
    prefix = settings.database_prefix
    assert sorted(name for names in made for name in names) == [f"{prefix}dagster", f"{prefix}mlflow"]
    assert all(existing_databases(settings).values())


def test_text_is_utf_8_and_ordered_by_bytes(settings: Settings) -> None:
    create_databases(settings)
    engine = open_engine(database_url(settings, "dagster"))
    with transaction(engine) as connection:
        assert connection.scalar(sa.text("show server_encoding")) == "UTF8"
        order = connection.scalars(sa.text("select * from unnest(array['b', 'B', 'é', 'a_', 'aa']) as t order by t"))
        assert list(order) == ["B", "a_", "aa", "b", "é"]
    engine.dispose()


def test_an_account_that_may_not_create_databases_is_told_so(settings: Settings, postgres_server: RunningServer) -> None:
    role = f"{settings.database_prefix}limited"
    administrator = postgres_server.maintenance
    with transaction(administrator) as connection:
        connection.execute(sa.text(f"create role {role} login password 'limited'"))
    limited = server_url(settings).set(username=role, password="limited")
    denied = replace(settings, postgres_owner_url=limited.render_as_string(hide_password=False))
    with pytest.raises(CatalogError, match=rf"{role}@.*may not create the database '\w+dagster'.*CREATEDB"):
        create_databases(denied)
    with transaction(administrator) as connection:
        connection.execute(sa.text(f"drop role {role}"))
