"""Actions of people in the events of promotions, in place of a mark whose meaning stood in the text of the reason."""

import sqlalchemy as sa
from alembic import op

revision = "0112"
down_revision = "0111"


_MEANT = """
case when not manual then null when state = 'rejected' then 'reject'
     when starts_with(reason, 'rolled back by hand') then 'rollback' else 'promote' end
"""


def upgrade() -> None:
    """Turn the mark into the action, by states and reasons as they were read before."""
    op.alter_column("promotion", "manual", server_default=None, nullable=True)
    op.alter_column("promotion", "manual", type_=sa.Text, postgresql_using=_MEANT)
    op.alter_column("promotion", "manual", new_column_name="action")
