"""Alembic's entry: runs the requested migrations on the given connection, in the caller's transaction."""

from alembic import context

from modyn_dagster.catalog.database.mapping import metadata

# The naming convention of ``metadata`` also names the constraints that migrations create.
context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
