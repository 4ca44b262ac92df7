"""What a training was like: steps, seconds of every epoch, and everything else that decided its bits."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("model", sa.Column("training", JSONB, server_default="{}", nullable=False))
