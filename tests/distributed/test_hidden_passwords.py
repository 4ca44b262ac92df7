"""Settings on their way to another node: without the passwords of addresses."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import make_url

from modyn_dagster.settings import Settings


@given(middle=st.text(st.characters(codec="utf-8", exclude_characters="@"), max_size=8))
@example("/cd+e")
@example("#1")
@example("?x")
@example("?password=")
@example(":")
def test_settings_for_other_nodes_hold_no_password_whatever_its_characters(middle: str) -> None:
    other = middle.replace("&", "")
    url = f"postgresql://modyn:geheim{middle}geheim@db:5432/modyn?sslmode=require&sslpassword=geheim@{other}geheim"
    assert "geheim" in str(make_url(url).password)
    sent = Settings(Path("/project"), Path("/home"), postgres_url=url).without_secrets().postgres_url
    assert sent == "postgresql://modyn:***@db:5432/modyn?sslmode=require&sslpassword=***"


@pytest.mark.parametrize("url", ["postgresql://modyn@db:5432/modyn?sslmode=require", "postgresql:///modyn", "postgresql://db/x"])
def test_addresses_without_a_password_travel_as_they_are(url: str) -> None:
    assert Settings(Path("/project"), Path("/home"), postgres_url=url).without_secrets().postgres_url == url
