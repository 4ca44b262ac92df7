"""Promotions: gates of runs, changes of the states of models, and the champion of a run."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0111"
down_revision = "0110"


def upgrade() -> None:
    """Make the tables and the column; runs of before have no gate."""
    op.create_table(
        "promotion_gate",
        sa.Column("run_id", sa.Integer, sa.ForeignKey("pipeline_run.id"), primary_key=True),
        sa.Column("batch", sa.Integer, nullable=False, server_default="-1"),
        sa.Column("epoch", sa.Integer, nullable=False, server_default="0"),
        sa.Column("state", JSONB, nullable=False, server_default="{}"),
    )
    op.create_table(
        "promotion",
        sa.Column("id", sa.Integer, sa.Identity(), primary_key=True),
        sa.Column("run_id", sa.Integer, sa.ForeignKey("pipeline_run.id"), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("trigger_id", sa.Integer, sa.ForeignKey("trigger.id"), nullable=False),
        sa.Column("model_hash", sa.Text, nullable=False),
        sa.Column("before", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("batch", sa.Integer, nullable=False),
        sa.Column("time", sa.DateTime(timezone=True)),
        sa.Column("verdict", JSONB),
        sa.Column("manual", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.UniqueConstraint("run_id", "number"),
    )
    op.add_column("pipeline_run", sa.Column("champion_model", sa.Text))
