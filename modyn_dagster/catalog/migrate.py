"""Bring the ``modyn`` database to the schema of this code, by Alembic and its files in ``catalog/migrations``."""

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from modyn_dagster.catalog.engine import current_revision, transaction
from modyn_dagster.catalog.revisions import MIGRATIONS, head_revision, outdated

__all__ = ["current_revision", "head_revision", "upgrade"]

# Any number that nothing else in the database locks: the letters of "modyn".
_LOCK = int.from_bytes(b"modyn")


def upgrade(engine: sa.Engine) -> None:
    """Run the missing migrations, all in one transaction; two upgrades at once run one after the other.

    Raises ``SchemaOutdated`` when the database was already upgraded by a later version of this code.
    """
    found = current_revision(engine)
    if found is not None and (error := outdated(found)).newer:
        raise error
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    with transaction(engine) as connection:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
