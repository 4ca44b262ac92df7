"""Samples can be deleted: the list of a batch, when samples were purged, and which cells were scored before."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("batch", sa.Column("deleted_version", sa.Integer, server_default="0", nullable=False))
    op.add_column("batch", sa.Column("deleted_checksum", sa.Text, nullable=True))
    op.add_column("batch", sa.Column("n_deleted", sa.BigInteger, server_default="0", nullable=False))
    op.create_check_constraint("ck_batch_deleted_list", "batch", "(deleted_version = 0) = (deleted_checksum is null)")
    op.add_column("deletion", sa.Column("purged_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("evaluation", sa.Column("n_deleted", sa.BigInteger, server_default="0", nullable=False))
