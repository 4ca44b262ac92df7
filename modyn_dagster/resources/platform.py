"""The platform as a Dagster resource: specs, database and files of one project."""

from functools import cache
from typing import TYPE_CHECKING

import dagster as dg

from modyn_dagster.settings import Settings

if TYPE_CHECKING:
    from modyn_dagster.pipeline.platform import Platform


class PlatformResource(dg.ConfigurableResource):  # type: ignore[type-arg]  # it gives itself, no other type
    """Platform that assets and sensors work with: project, database, files."""

    # A dependency and no configuration: Dagster shows configuration in its pages, and the address may hold a password.
    settings: dg.ResourceDependency[Settings]

    def platform(self) -> "Platform":
        """Specs, database and files; the database is first touched by a transaction.

        Raises ``ConfigError`` when a spec became impossible since the code location was loaded.
        """
        return platform_of(self.settings)


@cache
def platform_of(settings: Settings) -> "Platform":
    """One platform, and with it one pool of connections, per process and settings."""
    # Imported here: the pipeline packages stand behind it, and a code location must load without them.
    from modyn_dagster.pipeline.platform import Platform

    return Platform.open(settings)
