"""``modyn-dagster dataset replace``: ingest corrected files as new samples, and delete the old ones."""

from contextlib import closing
from typing import TYPE_CHECKING

import click
import numpy as np

from modyn_dagster.cli.dagster_runs import dagster_instance
from modyn_dagster.cli.dataset.delete import show_deletion, show_new_users
from modyn_dagster.cli.project import dataset_spec, open_platform

if TYPE_CHECKING:
    from modyn_dagster.catalog.batches import BatchRow
    from modyn_dagster.ingestion.ingest import IngestResult
    from modyn_dagster.pipeline.platform import Platform


@click.command()
@click.argument("name")
@click.argument("batch")
@click.option("--dry-run", is_flag=True, help="Only show the samples that would be deleted, and their users.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def replace(name: str, batch: str, dry_run: bool, yes: bool) -> None:
    """Replace BATCH of dataset NAME, whose files were corrected in place.

    The present files become a new batch at the end of the stream, and all old samples of BATCH are deleted in the same
    transaction. First the training sets and models that have used the old samples are shown. Past decisions stay. When the
    corrected files cannot be ingested, the old samples stay and the exit code is 1; after a kill, run the command again.
    """
    from modyn_dagster.ingestion.deletion.delete import plan_deletion
    from modyn_dagster.ingestion.replacement import replaceable_batch
    from modyn_dagster.keys import keys_of
    from modyn_dagster.pipeline.operate.sample_lineage import usages_of

    with closing(open_platform()) as platform:
        old = replaceable_batch(platform.engine, dataset_spec(platform, name), platform.project.root_of(name), batch)
        keys = keys_of(old.ordinal, np.arange(old.n_samples or 0))
        with platform.transaction() as conn:
            plan = plan_deletion(conn, platform.home, platform.read_view(conn, name).row, keys)
        users = usages_of(platform, old.dataset_id, keys)
        show_deletion(name, plan, users)
        if dry_run:
            return
        if not yes:
            click.confirm("Delete them, and ingest the present files in their place?", abort=True)
        new = _replace(platform, name, old)
        show_new_users(users, usages_of(platform, old.dataset_id, keys))
    place = f"{new.partition_key}, {new.n_samples} samples at the end of the stream"
    click.echo(f"{name}: batch {batch} is replaced by {place}")


def _replace(platform: "Platform", name: str, old: "BatchRow") -> "IngestResult":
    """Replace a batch, and show in Dagster what became of it, also where the corrected files are bad."""
    from modyn_dagster.assets.samples import announce_batches
    from modyn_dagster.ingestion.replacement import replace_batch

    with dagster_instance(platform.settings) as instance:
        try:
            return replace_batch(platform.engine, platform.home, platform.dataset(name), platform.project.root_of(name), old)
        finally:
            announce_batches(instance, platform, name)
