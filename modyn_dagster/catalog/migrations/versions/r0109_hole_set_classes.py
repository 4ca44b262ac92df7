"""Largest classes of label files without the labels of holes."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0109"
down_revision = "0108"


def upgrade() -> None:
    """Make the column; sets of before count the classes of whole files."""
    op.add_column("hole_set", sa.Column("late_classes", JSONB, nullable=False, server_default="{}"))
