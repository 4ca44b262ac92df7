"""``modyn-dagster dataset delete``: delete samples, and name the training sets and models that have used them."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modyn_dagster.cli.console import say
from modyn_dagster.cli.project import open_platform

if TYPE_CHECKING:
    from modyn_dagster.catalog.datasets import DatasetRow
    from modyn_dagster.ingestion.deletion.delete import BatchDeletion
    from modyn_dagster.ingestion.deletion.purge import PurgedBatch
    from modyn_dagster.keys import KeyArray
    from modyn_dagster.pipeline.operate.sample_lineage import SampleUse
    from modyn_dagster.pipeline.platform import Platform

_MOST_SHOWN = 20


@click.command()
@click.argument("name")
@click.option("--keys", metavar="K,K2-K3", help="Keys and ranges of keys, both ends included.")
@click.option(
    "--file",
    "key_file",
    type=click.Path(path_type=Path),
    help="A text file with a key per line, or a CSV file with a column `key`.",
)
@click.option(
    "--source-file", metavar="PATH", help="All samples of an ingested file; the path is relative to the dataset's root."
)
@click.option("--where", metavar="CONDITION", help="For example: label = spam and time < 2024-01-01, or attributes.user = 17.")
@click.option("--reason", help="Recorded with the deletion.")
@click.option(
    "--purge", is_flag=True, help="Also overwrite their bytes in our shards, and their labels and attributes, for good."
)
@click.option("--dry-run", is_flag=True, help="Only show the samples that would be deleted, and their users.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(name: str, *, reason: str | None, purge: bool, dry_run: bool, yes: bool, **selection: Any) -> None:
    """Delete samples of dataset NAME for good.

    No later training set holds them, no model is evaluated on them, and reading them is an error. Past decisions stay: deleted
    samples still count for triggers. The command first shows the number of samples per batch, and the training sets and models
    that have used them. Deleting the same samples again changes nothing.
    """
    selection = {option: value for option, value in selection.items() if value is not None}
    if len(selection) != 1:
        raise click.UsageError("Give one of --keys, --file, --source-file and --where.")
    with closing(open_platform()) as platform:
        dataset = platform.view(name).row
        keys = _select_keys(platform, dataset, **selection)
        plan = _plan(platform, dataset, keys)
        usages = _usages(platform, dataset, keys)
        show_deletion(name, plan, usages)
        if dry_run or not plan:
            return
        if not yes:
            click.confirm("Purge them for good?" if purge else "Delete them for good?", abort=True)
        _delete(platform, dataset, keys, reason)
        show_new_users(usages, _usages(platform, dataset, keys))
        if purge:
            _purge(platform, dataset, keys)


def _select_keys(
    platform: "Platform",
    dataset: "DatasetRow",
    keys: str | None = None,
    key_file: Path | None = None,
    source_file: str | None = None,
    where: str | None = None,
) -> "KeyArray":
    from modyn_dagster.ingestion.deletion.keys import keys_of_file, keys_of_source_file, keys_of_text, keys_where

    spec = platform.project.datasets[dataset.name]
    if key_file is not None:
        return keys_of_file(key_file)
    with platform.transaction() as conn:
        if keys is not None:
            return keys_of_text(conn, dataset, keys)
        if source_file is not None:
            return keys_of_source_file(conn, platform.home, spec, dataset, source_file)
        return keys_where(conn, spec, dataset, str(where))


def _plan(platform: "Platform", dataset: "DatasetRow", keys: "KeyArray") -> "list[BatchDeletion]":
    from modyn_dagster.ingestion.deletion.delete import plan_deletion

    with platform.transaction() as conn:
        return plan_deletion(conn, platform.home, dataset, keys)


def _usages(platform: "Platform", dataset: "DatasetRow", keys: "KeyArray") -> "list[SampleUse]":
    from modyn_dagster.pipeline.operate.sample_lineage import usages_of

    return usages_of(platform, dataset.id, keys)


def show_deletion(name: str, plan: "Sequence[BatchDeletion]", usages: "Sequence[SampleUse]") -> None:
    """Print the samples to delete per batch, and the training sets and models that have used them."""
    n_samples = sum(len(step.requested) for step in plan)
    say(f"{name}: {n_samples} samples in {len(plan)} batches")
    for step in plan:
        already = f", {step.n_already} of them deleted before" if step.n_already else ""
        say(f"  batch {step.batch.partition_key}: {len(step.requested)} of {step.batch.n_samples} samples{already}")
    say(f"used by {len(usages)} training sets" + ":" * bool(usages))
    for usage in usages:
        say(f"  {_line(usage)}")


def show_new_users(before: "Sequence[SampleUse]", after: "Sequence[SampleUse]") -> None:
    """Print the training sets that used the samples since the question was asked."""
    for usage in after:
        if usage not in before:
            say(f"meanwhile: {_line(usage)}")


def _line(usage: "SampleUse") -> str:
    used = usage.used_by
    keys = f"unknown: {usage.why_unknown}" if usage.n_keys is None else f"{usage.n_keys} of the keys"
    model = f"model {used.model_hash}" if used.model_hash is not None else f"no model, the trigger is {used.state}"
    inherited = ", started from a model above" if usage.inherited else ""
    return f"{used.pipeline} ({used.mode}) trigger {used.partition_key}: {keys}; {model}{inherited}"


def _delete(platform: "Platform", dataset: "DatasetRow", keys: "KeyArray", reason: str | None) -> None:
    from modyn_dagster.ingestion.deletion.delete import delete_samples

    steps = delete_samples(platform.engine, platform.home, dataset, keys, reason)
    n_deleted = sum(len(step.newly_deleted) for step in steps)
    say(f"{dataset.name}: {n_deleted} samples deleted, {sum(step.n_already for step in steps)} were deleted before")


def _purge(platform: "Platform", dataset: "DatasetRow", keys: "KeyArray") -> None:
    from modyn_dagster.ingestion.deletion.delete import replaced_pairs
    from modyn_dagster.ingestion.deletion.purge import purge_samples

    spec = platform.project.datasets[dataset.name]
    purged = purge_samples(platform.engine, platform.home, spec, dataset, keys)
    say(f"{dataset.name}: {sum(batch.n_purged for batch in purged)} samples purged")
    _list("read in place and not touched, these files still hold them", list(_in_place(purged)))
    _list("copied at ingestion, these files hold them where they still exist", [p for b in purged for p in b.copied_from])
    _list(
        "a training may still read these replaced files, which hold them; run the command again once none is running",
        [str(path) for path in replaced_pairs(platform.engine, platform.home, dataset)],
    )


def _in_place(purged: "Sequence[PurgedBatch]") -> Iterator[str]:
    for batch in purged:
        for path, n_samples in batch.in_place.items():
            yield f"{path} ({n_samples} samples)"


def _list(title: str, lines: Sequence[str]) -> None:
    if lines:
        say(f"{title}:")
    for line in lines[:_MOST_SHOWN]:
        say(f"  {line}")
    if len(lines) > _MOST_SHOWN:
        say(f"  and {len(lines) - _MOST_SHOWN} more")
