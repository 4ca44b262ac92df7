"""Label batches, ids of samples, and labels that wait for their samples."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0106"
down_revision = "0105"

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Make the tables; datasets whose labels come with their samples have no rows in them."""
    op.create_table(
        "label_batch",
        sa.Column("id", sa.Integer, sa.Identity(), primary_key=True),
        sa.Column("dataset_id", sa.Integer, sa.ForeignKey("dataset.id"), nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("arrival", sa.Integer, nullable=False),
        sa.Column("partition_key", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False, server_default="open"),
        sa.Column("source", JSONB, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("repaired_by", sa.Integer, sa.ForeignKey("label_batch.id")),
        sa.Column("n_rows", sa.BigInteger),
        sa.Column("n_known", sa.BigInteger),
        sa.Column("n_waiting", sa.BigInteger),
        sa.Column("known_min", _TIME),
        sa.Column("known_max", _TIME),
        sa.Column("label_counts", JSONB),
        sa.Column("delays", JSONB),
        sa.Column("findings", JSONB),
        sa.Column("checksums", JSONB),
        sa.Column("created_at", _TIME, nullable=False, server_default=sa.func.now()),
        sa.Column("ingested_at", _TIME),
        sa.UniqueConstraint("dataset_id", "ordinal"),
        sa.UniqueConstraint("dataset_id", "partition_key"),
        sa.CheckConstraint("state in ('open', 'ingested', 'failed')", name="state"),
    )
    op.create_table(
        "sample_id",
        sa.Column("dataset_id", sa.Integer, sa.ForeignKey("dataset.id"), primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("key", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "waiting_label",
        sa.Column("id", sa.Integer, sa.Identity(), primary_key=True),
        sa.Column("dataset_id", sa.Integer, sa.ForeignKey("dataset.id"), nullable=False),
        sa.Column("sample_id", sa.Text, nullable=False),
        sa.Column("label_batch_id", sa.Integer, sa.ForeignKey("label_batch.id"), nullable=False),
        sa.Column("arrival", sa.Integer, nullable=False),
        sa.Column("known_at", _TIME, nullable=False),
        sa.Column("name", sa.Text),
        sa.Column("label", sa.BigInteger),
        sa.Column("target", sa.Double),
        sa.Column("digest", sa.BigInteger, nullable=False),
        sa.Index("ix_waiting_label_dataset_id", "dataset_id", "sample_id"),
    )
