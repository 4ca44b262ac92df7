"""What state server, databases and schema are in, whatever of them is missing."""

from dataclasses import dataclass

from modyn_dagster.catalog.databases import existing_databases
from modyn_dagster.catalog.embedded import EmbeddedPostgres, ServerStatus
from modyn_dagster.catalog.engine import current_revision, open_engine
from modyn_dagster.catalog.revisions import head_revision
from modyn_dagster.catalog.urls import database_url, server_url, shown
from modyn_dagster.errors import DatabaseDown
from modyn_dagster.settings import Settings


@dataclass(frozen=True, slots=True)
class Health:
    """``server`` is None when it is not the embedded one, or was never started; ``problem`` says why it does not answer."""

    address: str
    server: ServerStatus | None
    databases: dict[str, bool]
    revision: str | None
    expected_revision: str
    problem: str | None

    @property
    def answers(self) -> bool:
        """Whether the server accepts connections."""
        return self.problem is None

    @property
    def ready(self) -> bool:
        """Whether everything of ours can work with it."""
        return self.answers and all(self.databases.values()) and self.revision == self.expected_revision


def health_of(settings: Settings) -> Health:
    """Look at the server and ask it; raises only for settings that are wrong."""
    try:
        address = shown(server_url(settings))
        server = None if settings.postgres_url else EmbeddedPostgres(settings.home, settings.pg_bin).status()
    except DatabaseDown as error:
        return Health(error.address, None, {}, None, head_revision(), str(error))
    try:
        databases = existing_databases(settings)
        revision = _revision(settings) if databases[str(database_url(settings, "modyn").database)] else None
    except DatabaseDown as error:
        return Health(address, server, {}, None, head_revision(), str(error))
    return Health(address, server, databases, revision, head_revision(), None)


def _revision(settings: Settings) -> str | None:
    engine = open_engine(settings)
    try:
        return current_revision(engine)
    finally:
        engine.dispose()
