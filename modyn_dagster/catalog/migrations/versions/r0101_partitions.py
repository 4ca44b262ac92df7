"""A function that makes the partition of ``sample`` of a dataset, for a role that may write rows but change no schema."""

from alembic import op

revision = "0101"
down_revision = "0100"

# Attached rather than created in place: ATTACH does not block readers and writers of other datasets. COPY goes straight into the
# leaf and leaves the dataset out. The function has the rights of its owner, so names are looked up in no schema of the caller's.
_FUNCTION = """
create function add_sample_partition(dataset_id integer) returns void
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    leaf constant text := 'sample_' || dataset_id;
begin
    execute format('create table %I (like sample including all)', leaf);
    execute format('alter table %I alter column dataset_id set default %L::integer', leaf, dataset_id);
    execute format('create index on %I using brin (key) with (autosummarize = on)', leaf);
    execute format('alter table sample attach partition %I for values in (%L)', leaf, dataset_id);
end
$$
"""


def upgrade() -> None:
    """Make the function, for the roles that it is granted to."""
    op.execute(_FUNCTION)
    op.execute("revoke execute on function add_sample_partition(integer) from public")
