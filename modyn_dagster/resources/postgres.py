"""The ``modyn`` database as a Dagster resource, for assets of a project's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import dagster as dg

from modyn_dagster.resources.platform import platform_of
from modyn_dagster.settings import Settings

if TYPE_CHECKING:
    import sqlalchemy as sa


class PostgresResource(dg.ConfigurableResource):  # type: ignore[type-arg]  # it gives itself, no other type
    """Database of the platform, embedded or at ``MODYN_POSTGRES_URL``; the platform owns the pool of connections.

    Examples
    --------
    An asset of a user's own reads the catalog:

    >>> @dg.asset
    ... def n_models(modyn_postgres: PostgresResource) -> dg.MaterializeResult:
    ...     with modyn_postgres.transaction() as connection:
    ...         count = connection.scalar(sa.select(sa.func.count()).select_from(tables.model))
    ...     return dg.MaterializeResult(metadata={"models": count})
    """

    # A dependency and no configuration: Dagster shows configuration in its pages, and the address may hold a password.
    settings: dg.ResourceDependency[Settings]

    def url(self) -> "sa.URL":
        """The address with its password, which its text hides. ``DatabaseDown`` when the embedded server never started."""
        from modyn_dagster.catalog.database.urls import database_url

        return database_url(self.settings, "modyn")

    def engine(self) -> "sa.Engine":
        """The process's pool of connections, whose schema is the one this code needs; do not dispose of it.

        Raises:
            DatabaseDown: Postgres does not answer; its text says how to start it.
            SchemaOutdated: the schema is older; its text names the command.
        """
        return platform_of(self.settings).engine

    @contextmanager
    def transaction(self) -> Iterator["sa.Connection"]:
        """One transaction: committed at the end of the block, rolled back by any exception."""
        with platform_of(self.settings).transaction() as connection:
            yield connection
