"""The schema revisions this code knows: the files in ``catalog/migrations``."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from modyn_dagster.errors import SchemaOutdated

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory

MIGRATIONS: Final = Path(__file__).with_name("migrations")


@cache
def head_revision() -> str:
    """The revision this code was written for."""
    heads = _scripts().get_heads()
    if len(heads) != 1:
        raise RuntimeError(f"{MIGRATIONS}: the migrations end in {len(heads)} heads, expected one: {', '.join(heads)}")
    return heads[0]


def outdated(found: str | None) -> SchemaOutdated:
    """The error for a database at another revision; one that is not among ours was made by later code."""
    ours = {script.revision for script in _scripts().walk_revisions()}
    return SchemaOutdated(found, head_revision(), newer=found is not None and found not in ours)


@cache
def _scripts() -> "ScriptDirectory":
    # Imported here: processes that only read the catalog do without Alembic until they ask.
    from alembic.script import ScriptDirectory

    return ScriptDirectory(str(MIGRATIONS))
