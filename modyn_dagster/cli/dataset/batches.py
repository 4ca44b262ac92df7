"""``modyn-dagster dataset``: import history, list batches, retry failed ones."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from modyn_dagster.cli.console import say, show_table
from modyn_dagster.cli.dagster_runs import dagster_instance
from modyn_dagster.cli.dataset.delete import delete
from modyn_dagster.cli.dataset.deletion_report import verify_deletion
from modyn_dagster.cli.dataset.labels import labels
from modyn_dagster.cli.dataset.lineage import lineage
from modyn_dagster.cli.dataset.replace import replace
from modyn_dagster.cli.project import dataset_spec, open_platform
from modyn_dagster.cli.removal import remove_dataset
from modyn_dagster.cli.verify import verify_dataset
from modyn_dagster.errors import without_secrets
from modyn_dagster.progress import progress_bar

if TYPE_CHECKING:
    from modyn_dagster.catalog.batches import BatchRow
    from modyn_dagster.ingestion.history import ImportSummary
    from modyn_dagster.pipeline.platform import Platform
    from modyn_dagster.reporting.terminal import TerminalTable


def batch_status(name: str, batch: "BatchRow", n_late: int | None) -> dict[str, Any]:
    """A batch as JSON."""
    from modyn_dagster.catalog.database.failures import TRACEBACK

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
        "traceback": batch.source.get(TRACEBACK),
        "delivered_again": batch.repaired_by is not None,
    }


def batch_table(name: str, batches: "Sequence[BatchRow]", late: Mapping[int, int], *, has_label: bool) -> "TerminalTable":
    """Table of a dataset's batches; ``late`` samples by ordinal. A dataset without a label says so."""
    from modyn_dagster.reporting.tables import Table

    counts = {state: sum(batch.state == state for batch in batches) for state in ("ingested", "open", "failed")}
    samples, deleted = sum(batch.n_samples or 0 for batch in batches), sum(batch.n_deleted for batch in batches)
    shares = [f"{n} of them {kind}" for n, kind in ((deleted, "deleted"), (sum(late.values()), "late")) if n]
    facts = [f"{samples} samples", *shares, *([] if has_label else ["no label"])]
    caption = f"{', '.join(facts)}; " + ", ".join(f"{n} {state}" for state, n in counts.items())
    rows = []
    for batch in batches:
        labels = _most_frequent_labels(batch) if batch.state != "failed" else str(batch.error)
        state = "failed, delivered again" if batch.repaired_by is not None else batch.state
        first, last = (f"{moment:%Y-%m-%d %H:%M}" if moment else "" for moment in (batch.time_min, batch.time_max))
        rows.append((batch.partition_key, state, _samples_text(batch, late.get(batch.ordinal, 0)), first, last, labels))
    return Table(("batch", "state", "samples", "from", "to", "labels"), tuple(rows), caption, title=name, texts=True).rich()


def _samples_text(batch: "BatchRow", n_late: int) -> str:
    shares = [f"{n} {kind}" for n, kind in ((batch.n_deleted, "deleted"), (n_late, "late")) if n]
    return str(batch.n_samples or "") + (f" ({', '.join(shares)})" if shares else "")


def _most_frequent_labels(batch: "BatchRow", most: int = 5) -> str:
    counts = sorted((batch.label_counts or {}).items(), key=lambda item: -item[1])
    return ", ".join(f"{label}: {n}" for label, n in counts[:most]) + (", …" if len(counts) > most else "")


@click.group()
def dataset() -> None:
    """Import, inspect and repair the batches of a dataset, and delete samples."""


dataset.add_command(delete)
dataset.add_command(lineage)
dataset.add_command(labels)
dataset.add_command(remove_dataset)
dataset.add_command(replace)
dataset.add_command(verify_dataset)
dataset.add_command(verify_deletion)


@dataset.command("import")
@click.argument("name")
@click.option(
    "--by",
    default="file",
    show_default=True,
    metavar="file|time:DURATION|count:N",
    help="Unit of a batch: a file (or directory, or manifest, as the dataset says), a span of time, N samples.",
)
def import_(name: str, by: str) -> None:
    """Ingest everything in the root of dataset NAME that no batch has yet.

    After an interruption, run it again to continue. A batch that cannot be ingested is closed as failed, the others continue,
    and the exit code is 1. Batches show up in Dagster as if its sensor had found them.

    Label files arrive among the batches, each once the time of the stream has reached its newest label.
    """
    from modyn_dagster.assets.labels.asset import announce_labels
    from modyn_dagster.assets.samples import announce_batches
    from modyn_dagster.ingestion.history import import_history

    with closing(open_platform()) as platform:
        spec, root = dataset_spec(platform, name), platform.project.root_of(name)
        label_root = platform.project.label_root_of(name) if spec.has_label_files else None
        with dagster_instance(platform.settings) as instance:
            with progress_bar(f"import {name}") as show:
                summary = import_history(
                    platform.engine,
                    platform.home,
                    spec,
                    root,
                    by=by,
                    label_root=label_root,
                    progress=lambda done, total, _: show(done, total),
                )
            with progress_bar(f"show {name} in Dagster") as show:
                announce_batches(instance, platform, name, progress=show)
            if spec.has_label_files:
                announce_labels(instance, platform, name)
        if not _batches(platform, name):
            settings = ", ".join(f"{field}: {value}" for field, value in spec.batches)
            say(f"nothing in {without_secrets(root)} is a batch as `batches` says ({settings})", err=True)
    _report(name, summary)


@dataset.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the tracebacks.")
@click.option("--traceback", "show_tracebacks", is_flag=True, help="Show where batches failed by an error that was not foreseen.")
def status(name: str | None, as_json: bool, show_tracebacks: bool) -> None:
    """Show the batches of dataset NAME, or of all: states, samples, times, and reasons of failures.

    Late samples are older than the newest sample of earlier batches: they change nothing that was decided.
    """
    from modyn_dagster.catalog.database.failures import TRACEBACK
    from modyn_dagster.data.batch_index import late_by_batch

    with closing(open_platform()) as platform:
        names = [dataset_spec(platform, name).name] if name is not None else sorted(platform.project.datasets)
        batches = {name: _batches(platform, name) for name in names}
        late = {name: late_by_batch(platform.home, batches[name]) for name in names}
    if as_json:
        rows = [batch_status(name, batch, late[name].get(batch.ordinal)) for name in names for batch in batches[name]]
        click.echo(json.dumps(rows, indent=2))
        return
    for title in names:
        has_label = platform.project.datasets[title].label is not None
        show_table(batch_table(title, batches[title], late[title], has_label=has_label))
        for batch in batches[title]:
            if show_tracebacks and TRACEBACK in batch.source:
                click.echo(f"batch {batch.partition_key}:\n{batch.source[TRACEBACK]}")


@dataset.command()
@click.argument("name")
@click.argument("batch", required=False)
def retry(name: str, batch: str | None) -> None:
    """Deliver failed batches of dataset NAME again, as new batches at the end of the stream, and ingest them.

    Retries all batches whose files changed since they failed, or BATCH alone, even if its files did not change. The exit code
    is 1 when one fails again.
    """
    from modyn_dagster.assets.samples import announce_batches
    from modyn_dagster.ingestion.history import ingest_open
    from modyn_dagster.ingestion.registration import retry as register_again
    from modyn_dagster.ingestion.sources.source import open_source

    with closing(open_platform()) as platform:
        spec, root = dataset_spec(platform, name), platform.project.root_of(name)
        register_again(platform.engine, spec, root, batch)
        # Open batches of an interrupted command are finished too.
        unfinished = [row for row in _batches(platform, name) if row.state == "open"]
        if not unfinished:
            say(f"{name}: no failed batch has files that changed since; name a batch to try it again all the same")
            return
        source = open_source(root, spec.storage_options)
        with dagster_instance(platform.settings) as instance:
            with progress_bar(f"retry {name}") as show:
                summary = ingest_open(
                    platform.engine, platform.home, spec, source, unfinished, lambda done, total, _: show(done, total)
                )
            with progress_bar(f"show {name} in Dagster") as show:
                announce_batches(instance, platform, name, progress=show)
    _report(name, summary)


def _batches(platform: "Platform", name: str) -> "list[BatchRow]":
    from modyn_dagster.catalog.batches import list_batches
    from modyn_dagster.catalog.registration.datasets import ensure_dataset

    with platform.transaction() as conn:
        return list_batches(conn, ensure_dataset(conn, platform.project.datasets[name]).id)


def _report(name: str, summary: "ImportSummary") -> None:
    """Print the counts of an import; the exit code is 1 when a batch failed."""
    say(f"{name}: {len(summary.ingested)} batches ingested, {summary.n_samples} samples, {len(summary.failed)} failed")
    if summary.labels or summary.failed_labels:
        rows, waiting = sum(result.n_labels for result in summary.labels), sum(result.n_waiting for result in summary.labels)
        say(f"{name}: {len(summary.labels)} label batches ingested, {rows} labels, {waiting} waited for their samples")
    for key, error in summary.failed:
        say(f"batch {key} failed: {error}", err=True)
    for key, error in summary.failed_labels:
        say(f"label batch {key} failed: {error}", err=True)
    if summary.failed or summary.failed_labels:
        raise click.exceptions.Exit(1)
