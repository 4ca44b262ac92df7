"""Addresses of the server and its databases; no message shows a password."""

from dataclasses import replace
from pathlib import Path

import psycopg2.extensions
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import URL

from modyn_dagster.catalog.access.authentication import display_address
from modyn_dagster.catalog.access.roles import DATABASES
from modyn_dagster.catalog.database.urls import child_environment, database_url, server_url
from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.errors import ConfigError, DatabaseDown
from modyn_dagster.settings import Settings

HERE = Path("/nowhere/project")
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


def with_server(address: str, prefix: str = "") -> Settings:
    return Settings(HERE, HERE / ".modyn", postgres_url=address, database_prefix=prefix)


def test_the_text_of_settings_holds_no_address() -> None:
    with_passwords = Settings(
        HERE, HERE, "postgresql://me:hidden@db/modyn", postgres_owner_url="hidden", files="s3://hidden@place"
    )
    assert "hidden" not in f"{with_passwords}{with_passwords!r}"
    assert "/nowhere/project" in repr(with_passwords)


@given(user=texts, password=texts)
def test_any_user_and_password_of_a_given_server_reach_the_driver_and_the_children(user: str, password: str) -> None:
    given_url = URL.create("postgresql", user, password, "db.example", 6543)
    settings = with_server(given_url.render_as_string(hide_password=False))
    url = database_url(settings, "modyn")
    assert (url.username, url.password, url.host, url.port, url.database) == (
        user,
        password,
        "db.example",
        6543,
        "modyn",
    )
    child = child_environment(settings)
    parsed = psycopg2.extensions.parse_dsn(child["DAGSTER_PG_URL"])
    assert (parsed["user"], parsed["password"], parsed["dbname"]) == (user, password, "dagster")
    again = Settings.from_environment(child)
    assert database_url(again, "modyn") == url


@given(password=st.text(min_size=12))
def test_what_is_shown_of_an_address_never_holds_the_password(password: str) -> None:
    url = URL.create("postgresql+psycopg2", "someone", password, "db.example", 5432, "modyn", {"sslpassword": password})
    assert display_address(url) == "someone@db.example:5432/modyn"


def test_the_driver_is_ours_whatever_the_address_names() -> None:
    for scheme in ("postgres", "postgresql", "postgresql+psycopg", "postgresql+psycopg2"):
        url = server_url(with_server(f"{scheme}://someone@db.example/somewhere?sslmode=require"))
        assert url.drivername == "postgresql+psycopg2"
        assert url.database == "somewhere"
        assert url.query == {"sslmode": "require", "require_auth": "scram-sha-256,none"}
    assert server_url(with_server("postgresql://db.example")).database == "postgres"


@pytest.mark.parametrize("address", ["mysql://u:hidden@h/d", "u:hidden@h:5432", "postgresql://u:hidden@h:port/d", "hidden"])
def test_an_address_of_something_else_is_refused_without_showing_it(address: str) -> None:
    with pytest.raises(ConfigError, match=r"MODYN_POSTGRES_URL.*postgresql://user:password@host:port") as caught:
        server_url(with_server(address))
    assert "hidden" not in str(caught.value)


def test_databases_have_the_prefix_in_front() -> None:
    settings = with_server("postgresql://db.example", "test_")
    assert [database_url(settings, name).database for name in DATABASES] == ["test_modyn", "test_dagster", "test_mlflow"]


@pytest.mark.parametrize("prefix", ['"; drop', "a-b", "é", " ", "x" * 60])
def test_a_prefix_that_makes_no_name_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigError, match="MODYN_DATABASE_PREFIX"):
        database_url(with_server("postgresql://db.example", prefix), "modyn")


@pytest.mark.soak("laws-data")
def test_without_a_given_server_it_is_the_embedded_one(server: EmbeddedPostgres) -> None:
    server.start()
    settings = Settings(HERE, server.home)
    assert server_url(settings) == server.url_of("writer")
    child = child_environment(settings)
    for variable, name in (("DAGSTER_PG_URL", "dagster"), ("MODYN_MLFLOW_URI", "mlflow")):
        parsed = psycopg2.extensions.parse_dsn(child[variable])
        assert (parsed["user"], parsed["dbname"], parsed["require_auth"]) == ("modyn_writer", name, "scram-sha-256")
        assert parsed["host"] == str(server.status().data.parent)
    assert child["MODYN_HOME"] == str(server.home)


def test_an_address_keeps_the_authentication_that_its_administrator_names() -> None:
    url = server_url(with_server("postgresql://someone:secret@db.example/?require_auth=gss"))
    assert url.query["require_auth"] == "gss"
    assert server_url(with_server("postgresql://someone:secret@db.example")).query["require_auth"] == "scram-sha-256"


def test_the_owner_of_the_schema_has_an_address_of_its_own_that_no_child_process_gets() -> None:
    settings = replace(with_server("postgresql://w:1@db.example"), postgres_owner_url="postgresql://o:secret-of-owner@db.example")
    assert (database_url(settings, "modyn").username, database_url(settings, "modyn", "owner").username) == ("w", "o")
    assert "secret-of-owner" not in str(child_environment(settings))
    assert database_url(with_server("postgresql://w:1@db.example"), "modyn", "owner").username == "w"
    with pytest.raises(ConfigError, match="create role"):
        server_url(settings, "reader")


def test_without_any_server_the_error_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(DatabaseDown, match="modyn-dagster db start"):
        child_environment(Settings(HERE, tmp_path))
