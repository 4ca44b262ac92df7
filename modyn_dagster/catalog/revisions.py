"""Revisions of the schema: the files in ``catalog/migrations``, and the remedy for a database at another revision."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from modyn_dagster.errors import SchemaOutdated

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory

MIGRATIONS: Final = Path(__file__).with_name("migrations")
#: Revisions of early versions; their migrations were replaced by one, 0100.
_EARLY: Final = frozenset(f"{number:04d}" for number in range(1, 8))
_START_ANEW: Final = (
    "an early version of modyn-dagster made it, and it cannot be upgraded; start anew: `modyn-dagster db stop`, move MODYN_HOME "
    "away (or name another MODYN_DATABASE_PREFIX), `modyn-dagster db start`, `modyn-dagster db upgrade`, and import the data"
)


@cache
def head_revision() -> str:
    """The revision this code was written for: that of the last file, so that a command starts without Alembic."""
    return max(path.name[1:5] for path in (MIGRATIONS / "versions").glob("r????_*.py"))


def can_upgrade(revision: str | None) -> bool:
    """Tell whether our migrations lead on from a revision; None is a database without any table."""
    return revision is None or revision in {script.revision for script in _scripts().walk_revisions()}


def outdated(revision: str | None) -> SchemaOutdated:
    """Make the error for a database at another revision; one that we do not know was made by later code."""
    if can_upgrade(revision):
        remedy = "run `modyn-dagster db upgrade`"
    else:
        remedy = _START_ANEW if revision in _EARLY else "update modyn-dagster"
    return SchemaOutdated(revision, head_revision(), remedy)


@cache
def _scripts() -> "ScriptDirectory":
    # Imported here: processes that only read the catalog do without Alembic until they ask.
    from alembic.script import ScriptDirectory

    return ScriptDirectory(str(MIGRATIONS))
