"""Labels that arrive after their samples: one sequence of arrivals per dataset, files of labels, and scores with them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0105"
down_revision = "0104"


def upgrade() -> None:
    """Add the sequence and the table; batches of datasets whose labels come with their samples have no arrival."""
    op.add_column("dataset", sa.Column("next_arrival", sa.Integer, nullable=False, server_default="0"))
    op.add_column("batch", sa.Column("arrival", sa.Integer))
    op.create_table(
        "label_file",
        sa.Column("id", sa.Integer, sa.Identity(), primary_key=True),
        sa.Column("dataset_id", sa.Integer, sa.ForeignKey("dataset.id"), nullable=False),
        sa.Column("arrival", sa.Integer, nullable=False),
        sa.Column("path", sa.Text, nullable=False, unique=True),
        sa.Column("checksum", sa.Text, nullable=False),
        sa.Column("n_rows", sa.BigInteger, nullable=False),
        sa.Column("parts", JSONB, nullable=False),
        sa.Column("largest", sa.Integer, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Index("ix_label_file_dataset_id_arrival", "dataset_id", "arrival"),
    )
    scores = {"value": sa.Double, "undefined": sa.Text, "low": sa.Double, "high": sa.Double, "labelled": sa.BigInteger}
    op.add_column("evaluation", sa.Column("n_labelled", sa.BigInteger))
    for name, kind in (scores | {"address": sa.Text, "arrival": sa.Integer}).items():
        op.add_column("evaluation", sa.Column(f"final_{name}", kind))
