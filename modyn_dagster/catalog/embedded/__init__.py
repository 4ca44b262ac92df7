"""A Postgres server of this project's own, for one machine; docs/postgres.md tells how it works."""

from modyn_dagster.catalog.embedded.server import EmbeddedPostgres, ServerStatus, StartedServer

__all__ = ["EmbeddedPostgres", "ServerStatus", "StartedServer"]
