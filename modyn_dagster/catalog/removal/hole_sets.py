"""Sets of holes: deleted samples that a run treats as if they had never arrived. A set never changes; runs share equal ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, insert

from modyn_dagster.catalog.database.mapping import BigInt, Default, Id, Mark, References, created_column, find_row, table
from modyn_dagster.catalog.removal.packed_keys import pack_keys
from modyn_dagster.errors import UnknownName
from modyn_dagster.keys import KeyArray
from modyn_dagster.values.digest import bytes_digest


@dataclass(frozen=True, slots=True)
class HoleSetRow:
    """A row of ``hole_set``.

    Attributes:
        digest: of the packed keys.
        n_keys: number of holes.
        keys: of the samples, as ``pack_keys`` packs them.
        batches: facts of the batches with holes, without these, by the decimal ordinal (``modyn_dagster.data.deletion.holes``).
        late_classes: largest class of label files without the labels of holes, by the decimal id of the file; where none is
            given, that of the file.
    """

    id: Id
    dataset_id: Annotated[int, References("dataset.id")]
    digest: str
    n_keys: BigInt
    keys: Annotated[bytes, sa.LargeBinary()]
    batches: Mapping[str, Any]
    late_classes: Annotated[Mapping[str, int], JSONB(), Default("{}"), Mark.APPENDED] = field(default_factory=dict)


hole_set: Final = table("hole_set", HoleSetRow, created_column(), sa.UniqueConstraint("dataset_id", "digest"))


def ensure_hole_set(
    conn: sa.Connection, dataset_id: int, keys: KeyArray, batches: Mapping[int, Any], late_classes: Mapping[int, int]
) -> int:
    """Store a set of ascending keys (``uint64[n]``) with its facts unless the dataset has it; returns its id."""
    packed = pack_keys(keys)
    digest = bytes_digest(packed)
    facts = {
        "batches": {str(ordinal): values for ordinal, values in batches.items()},
        "late_classes": {str(file): largest for file, largest in late_classes.items()},
    }
    values = {"dataset_id": dataset_id, "digest": digest, "n_keys": len(keys), "keys": packed, **facts}
    conn.execute(insert(hole_set).values(values).on_conflict_do_nothing())
    where = (hole_set.c.dataset_id == dataset_id) & (hole_set.c.digest == digest)
    return int(conn.execute(sa.select(hole_set.c.id).where(where)).scalar_one())


def get_hole_set(conn: sa.Connection, hole_set_id: int) -> HoleSetRow:
    """Read a set by id. Raises ``UnknownName``."""
    row = find_row(conn, HoleSetRow, sa.select(hole_set).where(hole_set.c.id == hole_set_id))
    if row is None:
        raise UnknownName("set of holes", hole_set_id)
    return row


def largest_hole_set(conn: sa.Connection, dataset_id: int) -> HoleSetRow | None:
    """The set of a dataset with the most holes, of equally large ones the newest; None without any."""
    where = hole_set.c.dataset_id == dataset_id
    return find_row(
        conn, HoleSetRow, sa.select(hole_set).where(where).order_by(hole_set.c.n_keys.desc(), hole_set.c.id.desc()).limit(1)
    )


def count_holes(conn: sa.Connection, hole_set_id: int | None) -> int:
    """Number of holes of a run with this set; none where it has no set."""
    statement = sa.select(hole_set.c.n_keys).where(hole_set.c.id == hole_set_id)
    return 0 if hole_set_id is None else int(conn.execute(statement).scalar_one())
