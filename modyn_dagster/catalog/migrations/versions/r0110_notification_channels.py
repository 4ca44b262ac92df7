"""Channels of notifications, each with a row of its own; rows of before are of the hook."""

import sqlalchemy as sa
from alembic import op

revision = "0110"
down_revision = "0109"


def upgrade() -> None:
    """Make the column, which tells the rows of one event apart."""
    op.add_column("notification", sa.Column("channel", sa.Text, nullable=False, server_default="hook"))
    op.drop_constraint("uq_notification_run_id_event", "notification")
    op.create_unique_constraint("uq_notification_run_id_event_channel", "notification", ["run_id", "event", "channel"])
