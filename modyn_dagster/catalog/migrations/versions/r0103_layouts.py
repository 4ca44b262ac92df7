"""Layouts of rows: the columns that the files of a batch have, once they are not all those of the dataset."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0103"
down_revision = "0102"


def upgrade() -> None:
    """Add the list to datasets and its number to batches; until now every batch has all columns."""
    op.add_column("dataset", sa.Column("layouts", JSONB, nullable=False, server_default="[]"))
    op.add_column("batch", sa.Column("layout", sa.Integer, nullable=False, server_default="0"))
