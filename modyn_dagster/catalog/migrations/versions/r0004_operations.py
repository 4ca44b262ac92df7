"""Runs that an operator stopped, triggers that a person made, seconds that policies were told, and what hooks were told."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0004"
down_revision = "0003"

_TIME = sa.DateTime(timezone=True)
_STATES = "'active', 'waiting', 'stopping', 'stopped', 'finished', 'ended'"
_OPEN = "'active', 'waiting', 'stopping', 'stopped'"


def upgrade() -> None:
    op.drop_constraint("ck_pipeline_run_state", "pipeline_run", type_="check")
    op.create_check_constraint("ck_pipeline_run_state", "pipeline_run", f"state in ({_STATES})")
    op.drop_index("uq_pipeline_run_live", "pipeline_run")
    where = sa.text(f"mode = 'live' and state in ({_OPEN})")
    op.create_index("uq_pipeline_run_live", "pipeline_run", ["pipeline_id"], unique=True, postgresql_where=where)
    op.add_column("pipeline_run", sa.Column("options", JSONB, server_default="{}", nullable=False))
    op.add_column("trigger", sa.Column("manual", sa.Boolean, server_default=sa.false(), nullable=False))
    op.add_column("model", sa.Column("seconds", sa.Double, nullable=True))
    op.create_table(
        "notification",
        sa.Column("id", sa.Integer, sa.Identity(), nullable=False),
        sa.Column("run_id", sa.Integer, nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("hook", sa.Text, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("error", sa.Text, nullable=True),
        sa.Column("told_at", _TIME, nullable=True),
        sa.Column("created_at", _TIME, server_default=sa.func.now(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["pipeline_run.id"], name="fk_notification_run_id_pipeline_run"),
        sa.PrimaryKeyConstraint("id", name="pk_notification"),
        sa.UniqueConstraint("run_id", "event", name="uq_notification_run_id_event"),
    )
