"""An embedded Postgres server for one machine; docs/postgres.md explains it."""

from modyn_dagster.catalog.embedded.server import EmbeddedPostgres, ServerStatus, StartedServer

__all__ = ["EmbeddedPostgres", "ServerStatus", "StartedServer"]
