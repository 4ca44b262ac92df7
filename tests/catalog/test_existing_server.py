"""An existing server: Debian's Postgres, set up as an administrator would."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from dagster import DagsterInstance

from modyn_dagster.catalog.database.databases import create_databases, upgrade
from modyn_dagster.catalog.database.engine import open_engine, require_current_schema, transaction
from modyn_dagster.catalog.database.urls import child_environment
from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.settings import Settings
from tests.debian_postgres import running_server, server_programs


@pytest.fixture
def programs() -> Path:
    """Debian's server programs."""
    found = server_programs()
    if found is None:
        pytest.skip("needs Debian's Postgres: apt-get install postgresql")
    return found


@pytest.fixture
def existing(programs: Path, scratch: Path) -> Iterator[Settings]:
    """Settings for a running server that knows nothing of us."""
    with running_server(programs, scratch) as url:
        yield Settings(scratch, scratch / "home", postgres_url=url.render_as_string(hide_password=False))


@pytest.mark.process
def test_an_existing_server_gets_our_databases_and_schema(existing: Settings) -> None:
    assert create_databases(existing) == ["modyn", "dagster", "mlflow"]
    engine = open_engine(existing)
    upgrade(engine)
    require_current_schema(engine)
    with transaction(engine) as connection:
        assert connection.scalar(sa.text("show server_encoding")) == "UTF8"
    engine.dispose()
    assert not existing.home.exists()


@pytest.mark.soak("laws-data")
@pytest.mark.process
def test_dagster_keeps_its_storage_there(existing: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_databases(existing)
    monkeypatch.setenv("DAGSTER_PG_URL", child_environment(existing)["DAGSTER_PG_URL"])
    (tmp_path / "dagster.yaml").write_text(
        "storage: {postgres: {postgres_url: {env: DAGSTER_PG_URL}}}\ntelemetry: {enabled: false}\n"
    )
    with DagsterInstance.from_config(str(tmp_path)) as instance:
        instance.add_dynamic_partitions("batches/stream", ["1900", "1901"])
        assert instance.get_dynamic_partitions("batches/stream") == ["1900", "1901"]


@pytest.mark.soak("laws-data")
def test_the_embedded_server_runs_over_debians_programs_and_its_data_stay_with_them(
    programs: Path, new_server: EmbeddedPostgres
) -> None:
    server = EmbeddedPostgres(new_server.home, programs)
    url = server.start().url
    engine = open_engine(url)
    upgrade(engine)
    with transaction(engine) as connection:
        major = int(str(connection.scalar(sa.text("show server_version_num")))) // 10_000
    engine.dispose()
    assert str(major) in programs.parts
    server.stop()
    # Without MODYN_PG_BIN those of the data's version are found, although the wheel's are newer.
    assert new_server.start().started_by_us
    require_current_schema(engine)
    engine.dispose()
