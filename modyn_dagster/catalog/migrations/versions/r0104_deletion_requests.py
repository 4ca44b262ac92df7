"""Deletion requests, with the document of each."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0104"
down_revision = "0103"

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "deletion_request",
        sa.Column("id", sa.Integer, sa.Identity(), primary_key=True),
        sa.Column("dataset_id", sa.Integer, sa.ForeignKey("dataset.id"), nullable=False),
        sa.Column("state", sa.Text, nullable=False, server_default="deleting"),
        sa.Column("epoch", sa.Integer, nullable=False, server_default="0"),
        sa.Column("keys", JSONB, nullable=False),
        sa.Column("document", JSONB, nullable=False),
        sa.Column("created_at", _TIME, nullable=False, server_default=sa.func.now()),
        sa.Column("finished_at", _TIME),
        sa.CheckConstraint("state in ('deleting', 'making', 'showing', 'finished')", name="state"),
    )
    op.create_index("ix_deletion_request_dataset_id", "deletion_request", ["dataset_id"])
