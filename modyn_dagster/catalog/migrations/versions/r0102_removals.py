"""Removal of pipelines and datasets, and of single models: a journal, the time a model was removed, and dropping partitions."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0102"
down_revision = "0101"

_TIME = sa.DateTime(timezone=True)

# The mirror of add_sample_partition, which see. A partition is dropped only once its dataset has no row any more.
_FUNCTION = """
create function drop_sample_partition(removed integer) returns void
language plpgsql security definer set search_path = public, pg_temp as $$
begin
    if exists (select from dataset where id = removed) then
        raise exception 'dataset % still exists', removed;
    end if;
    execute format('drop table if exists %I', 'sample_' || removed);
end
$$
"""


def upgrade() -> None:
    """Make the journal, the column and the function."""
    op.create_table(
        "removal",
        sa.Column("id", sa.Integer, sa.Identity(), primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("plan", JSONB, nullable=False),
        sa.Column("created_at", _TIME, nullable=False, server_default=sa.func.now()),
        sa.CheckConstraint("kind in ('dataset', 'pipeline')", name="kind"),
    )
    op.add_column("model", sa.Column("removed_at", _TIME))
    op.execute(_FUNCTION)
    op.execute("revoke execute on function drop_sample_partition(integer) from public")
