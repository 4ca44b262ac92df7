"""``modyn-dagster dataset``: import history, list batches, deliver failed ones again."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from modyn_dagster.cli.dagster_runs import dagster_instance
from modyn_dagster.cli.dataset.delete import delete
from modyn_dagster.cli.project import open_platform
from modyn_dagster.errors import UnknownName, without_secrets
from modyn_dagster.progress import progress_bar

if TYPE_CHECKING:
    from rich.table import Table

    from modyn_dagster.catalog.batches import BatchRow
    from modyn_dagster.ingestion.history import ImportProgress, ImportSummary
    from modyn_dagster.pipeline.platform import Platform
    from modyn_dagster.spec.dataset import DatasetSpec


def batch_status(name: str, batch: "BatchRow", n_late: int | None) -> dict[str, Any]:
    """A batch as JSON."""
    return {
        "dataset": name,
        "batch": batch.partition_key,
        "ordinal": batch.ordinal,
        "state": batch.state,
        "samples": batch.n_samples,
        "train_samples": batch.n_train,
        "deleted_samples": batch.n_deleted,
        "late_samples": n_late,
        "time_min": batch.time_min.isoformat() if batch.time_min else None,
        "time_max": batch.time_max.isoformat() if batch.time_max else None,
        "labels": batch.label_counts,
        "paths": batch.source["paths"],
        "error": batch.error,
        "delivered_again": batch.repaired_by is not None,
    }


def batch_table(name: str, batches: "Sequence[BatchRow]", late: Mapping[int, int]) -> "Table":
    """The batches of a dataset as a table; ``late`` samples by ordinal."""
    from rich.markup import escape
    from rich.table import Table

    counts = {state: sum(batch.state == state for batch in batches) for state in ("ingested", "open", "failed")}
    samples, deleted = sum(batch.n_samples or 0 for batch in batches), sum(batch.n_deleted for batch in batches)
    shares = [f"{n} of them {what}" for n, what in ((deleted, "deleted"), (sum(late.values()), "late")) if n]
    caption = f"{', '.join([f'{samples} samples', *shares])}; " + ", ".join(f"{n} {state}" for state, n in counts.items())
    table = Table("batch", "state", "samples", "from", "to", "labels", title=name, caption=caption)
    for batch in batches:
        shown = _most_frequent_labels(batch) if batch.state != "failed" else str(batch.error)
        state = "failed, delivered again" if batch.repaired_by is not None else batch.state
        first, last = (f"{moment:%Y-%m-%d %H:%M}" if moment else "" for moment in (batch.time_min, batch.time_max))
        table.add_row(
            escape(batch.partition_key), state, _samples_text(batch, late.get(batch.ordinal, 0)), first, last, escape(shown)
        )
    return table


def _samples_text(batch: "BatchRow", n_late: int) -> str:
    shares = [f"{n} {what}" for n, what in ((batch.n_deleted, "deleted"), (n_late, "late")) if n]
    return str(batch.n_samples or "") + (f" ({', '.join(shares)})" if shares else "")


def _most_frequent_labels(batch: "BatchRow", most: int = 5) -> str:
    counts = sorted((batch.label_counts or {}).items(), key=lambda item: -item[1])
    return ", ".join(f"{label}: {n}" for label, n in counts[:most]) + (", …" if len(counts) > most else "")


@click.group()
def dataset() -> None:
    """Import, inspect and repair the batches of a dataset, and delete samples."""


dataset.add_command(delete)


@dataset.command("import")
@click.argument("name")
@click.option(
    "--by",
    default="file",
    show_default=True,
    metavar="file|time:DURATION|count:N",
    help="What becomes a batch: a file (or directory, or manifest, as the dataset says), a span of time, N samples.",
)
def import_(name: str, by: str) -> None:
    """Ingest everything in the root of dataset NAME that no batch has yet.

    Interrupted, it goes on where it stopped. A batch that cannot be ingested is closed as failed and the others go on; then
    the exit code is 1. Batches show up in Dagster as if its sensor had found them.
    """
    from modyn_dagster.assets.samples import announce_batches
    from modyn_dagster.ingestion.history import import_history

    with _platform() as platform:
        spec, root = _dataset(platform, name)
        with dagster_instance(platform.settings) as instance:
            with _import_progress(f"import {name}") as progress:
                summary = import_history(platform.engine, platform.home, spec, root, by=by, progress=progress)
            announce_batches(instance, platform, name)
        if not _batches(platform, name):
            said = ", ".join(f"{field}: {value}" for field, value in spec.batches)
            click.echo(f"nothing in {without_secrets(root)} is a batch as `batches` says ({said})", err=True)
    _report(name, summary)


@dataset.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(name: str | None, as_json: bool) -> None:
    """Batches of dataset NAME, or of all: their states, samples, times, and why one failed.

    Late samples are older than what earlier batches had reached: they change nothing that was decided.
    """
    from modyn_dagster.data.batch_index import late_by_batch

    with _platform() as platform:
        names = [_dataset(platform, name)[0].name] if name is not None else sorted(platform.project.datasets)
        batches = {known: _batches(platform, known) for known in names}
        late = {known: late_by_batch(platform.home, batches[known]) for known in names}
    if as_json:
        rows = [batch_status(known, batch, late[known].get(batch.ordinal)) for known in names for batch in batches[known]]
        click.echo(json.dumps(rows, indent=2))
        return
    from rich.console import Console

    for known in names:
        Console().print(batch_table(known, batches[known], late[known]))


@dataset.command()
@click.argument("name")
@click.argument("batch", required=False)
def retry(name: str, batch: str | None) -> None:
    """Deliver failed batches of dataset NAME again, as new batches at the end of the stream, and ingest them.

    All whose files changed since they failed, or just BATCH, whether or not its files changed. The exit code is 1 when one
    fails again.
    """
    from modyn_dagster.assets.samples import announce_batches
    from modyn_dagster.ingestion.history import ingest_open
    from modyn_dagster.ingestion.registration import retry as register_again
    from modyn_dagster.ingestion.sources.source import open_source

    with _platform() as platform:
        spec, root = _dataset(platform, name)
        register_again(platform.engine, spec, root, batch)
        # Open ones that an interrupted command left are finished too.
        unfinished = [row for row in _batches(platform, name) if row.state == "open"]
        if not unfinished:
            click.echo(f"{name}: no failed batch has files that changed since; name a batch to try it again all the same")
            return
        source = open_source(root, spec.storage_options)
        with dagster_instance(platform.settings) as instance:
            with _import_progress(f"retry {name}") as progress:
                summary = ingest_open(platform.engine, platform.home, spec, source, unfinished, progress)
            announce_batches(instance, platform, name)
    _report(name, summary)


@contextmanager
def _platform() -> "Iterator[Platform]":
    platform = open_platform()
    try:
        yield platform
    finally:
        platform.close()


def _dataset(platform: "Platform", name: str) -> "tuple[DatasetSpec, str]":
    datasets = platform.project.datasets
    if name not in datasets:
        raise UnknownName("dataset", name, sorted(datasets))
    return datasets[name], platform.project.root_of(name)


def _batches(platform: "Platform", name: str) -> "list[BatchRow]":
    from modyn_dagster.catalog.batches import list_batches
    from modyn_dagster.catalog.registration import ensure_dataset

    with platform.transaction() as conn:
        return list_batches(conn, ensure_dataset(conn, platform.project.datasets[name]).id)


@contextmanager
def _import_progress(title: str) -> "Iterator[ImportProgress]":
    """A progress bar on standard error; nothing where that is no terminal."""
    with progress_bar(title) as progress:
        yield lambda done, total, _: progress(done, total)


def _report(name: str, summary: "ImportSummary") -> None:
    """Say what was done; exit code 1 when a batch failed."""
    click.echo(f"{name}: {len(summary.ingested)} batches ingested, {summary.n_samples} samples, {len(summary.failed)} failed")
    for key, error in summary.failed:
        click.echo(f"batch {key} failed: {error}", err=True)
    if summary.failed:
        raise click.exceptions.Exit(1)
