"""Keys of deletion requests as packed bytes: JSON of Postgres ends at 256 MB, which about four million keys reach."""

import json

import numpy as np
import sqlalchemy as sa
from alembic import op

from modyn_dagster.catalog.removal.packed_keys import pack_keys

revision = "0107"
down_revision = "0106"


def upgrade() -> None:
    """Pack the keys of stored requests; their documents lose the digests and positions, which follow from salt and keys."""
    connection = op.get_bind()
    rows = connection.execute(sa.text("select id, keys, document from deletion_request")).all()
    op.alter_column("deletion_request", "keys", type_=sa.LargeBinary(), postgresql_using="''::bytea")
    update = sa.text("update deletion_request set keys = :keys, document = cast(:document as jsonb) where id = :id")
    for row in rows:
        document = {name: value for name, value in row.document.items() if name != "keys"}
        batches = [{name: value for name, value in batch.items() if name != "ranges"} for batch in document.get("batches", ())]
        document["batches"] = batches
        packed = pack_keys(np.unique(np.array(row.keys, np.uint64)))
        connection.execute(update, {"id": row.id, "keys": packed, "document": json.dumps(document)})
