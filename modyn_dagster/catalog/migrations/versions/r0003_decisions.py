"""Every decision has a row, measurements say what they answer, and deciding and measuring are in the ledger by batch."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0003"
down_revision = "0002"

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "decision",
        sa.Column("id", sa.Integer, sa.Identity(), nullable=False),
        sa.Column("run_id", sa.Integer, nullable=False),
        sa.Column("point", sa.BigInteger, nullable=False),
        sa.Column("key", sa.BigInteger, nullable=False),
        sa.Column("time", _TIME, nullable=False),
        sa.Column("fire", sa.Boolean, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("score", sa.Double, nullable=True),
        sa.Column("threshold", sa.Double, nullable=True),
        sa.Column("details", JSONB, server_default="{}", nullable=False),
        sa.Column("created_at", _TIME, server_default=sa.func.now(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["pipeline_run.id"], name="fk_decision_run_id_pipeline_run"),
        sa.PrimaryKeyConstraint("id", name="pk_decision"),
        sa.UniqueConstraint("run_id", "point", name="uq_decision_run_id_point"),
    )
    op.add_column("measurement", sa.Column("asked", sa.Text, server_default="", nullable=False))
    op.add_column("measurement", sa.Column("details", JSONB, server_default="{}", nullable=False))
    op.add_column("stage_timing", sa.Column("batch_ordinal", sa.Integer, nullable=True))
