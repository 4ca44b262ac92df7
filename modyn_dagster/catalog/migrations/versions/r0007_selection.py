"""What a selection knows of a training set beside its window: the state of an online strategy, its fill, why none was written."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("training_set", sa.Column("details", JSONB, server_default="{}", nullable=False))
