"""``modyn-dagster dataset labels``: import, inspect and repair labels that arrive after their samples."""

import json
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import click

from modyn_dagster.cli.console import say, show_table
from modyn_dagster.cli.dagster_runs import dagster_instance
from modyn_dagster.cli.project import dataset_spec, open_platform
from modyn_dagster.errors import ConfigError
from modyn_dagster.progress import progress_bar

if TYPE_CHECKING:
    from modyn_dagster.catalog.labels.label_batches import LabelBatchRow
    from modyn_dagster.catalog.labels.waiting import WaitingId
    from modyn_dagster.pipeline.platform import Platform
    from modyn_dagster.reporting.label_coverage import LabelCoverage
    from modyn_dagster.spec.dataset import DatasetSpec

#: Waiting ids that are shown; the others are counted.
_SHOWN: Final = 20


@click.group()
def labels() -> None:
    """Import, inspect and repair labels that arrive after their samples."""


@labels.command("import")
@click.argument("name")
def import_labels(name: str) -> None:
    """Ingest all label files of dataset NAME that no label batch has yet.

    They arrive now, together, after all samples that are registered. `dataset import` lets them arrive among the samples of
    history instead, each at its time. A file that cannot be ingested is closed as failed, the others continue, and the exit code
    is 1. After an interruption, run it again to continue.
    """
    from modyn_dagster.ingestion.registration import register_all_labels

    with closing(open_platform()) as platform:
        spec = _later(platform, name)
        _ingest(platform, spec, register_all_labels(platform.engine, spec, platform.project.label_root_of(name)))


@labels.command()
@click.argument("name")
@click.argument("batch", required=False)
def retry(name: str, batch: str | None) -> None:
    """Deliver failed label batches of dataset NAME again, as new ones that arrive now, and ingest them.

    Retries all label batches whose files changed since they failed, or BATCH alone, even if its files did not change. The exit
    code is 1 when one fails again.
    """
    from modyn_dagster.catalog.labels.label_batches import list_label_batches
    from modyn_dagster.catalog.registration.datasets import ensure_dataset
    from modyn_dagster.ingestion.registration import retry_labels

    with closing(open_platform()) as platform:
        spec = _later(platform, name)
        retry_labels(platform.engine, spec, platform.project.label_root_of(name), batch)
        with platform.transaction() as conn:
            unfinished = list_label_batches(conn, ensure_dataset(conn, spec).id, "open")
        if not unfinished:
            say(f"{name}: no failed label batch has files that changed since; name one to try it again all the same")
            return
        _ingest(platform, spec, unfinished)


@labels.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all waiting ids and findings.")
def status(name: str, as_json: bool) -> None:
    """Show the label batches of dataset NAME, coverage by age of the samples, corrections, and ids that wait for a sample.

    Age is the time from a sample to the newest one of the dataset. Samples that have the label of `default_after` count as
    labelled; they are also counted apart.
    """
    from modyn_dagster.catalog.batches import list_batches
    from modyn_dagster.catalog.labels.label_batches import list_label_batches
    from modyn_dagster.catalog.labels.label_files import label_files
    from modyn_dagster.catalog.labels.waiting import count_waiting, waiting_ids
    from modyn_dagster.catalog.registration.datasets import ensure_dataset
    from modyn_dagster.reporting.label_coverage import label_coverage

    with closing(open_platform()) as platform:
        spec = _later(platform, name)
        with platform.transaction() as conn:
            dataset_id = ensure_dataset(conn, spec).id
            batches, files = list_label_batches(conn, dataset_id), label_files(conn, dataset_id)
            n_waiting, waiting = count_waiting(conn, dataset_id), waiting_ids(conn, dataset_id, None if as_json else _SHOWN)
            samples = list_batches(conn, dataset_id)
        coverage = label_coverage(platform.home, spec, samples, files)
    if as_json:
        click.echo(json.dumps(_status(name, batches, coverage, waiting), indent=2))
        return
    _show(name, batches, coverage, waiting, n_waiting)


def _later(platform: "Platform", name: str) -> "DatasetSpec":
    """The spec of a dataset with label files."""
    spec = dataset_spec(platform, name)
    if not spec.has_label_files:
        rule = "labels come with the samples here; those in files of their own need `arrives: later` and `files`"
        raise ConfigError(f"dataset {name}", "label", "no files", rule)
    return spec


def _ingest(platform: "Platform", spec: "DatasetSpec", batches: "Sequence[LabelBatchRow]") -> None:
    """Ingest open label batches, show them in Dagster, and print their counts; the exit code is 1 when one failed."""
    from modyn_dagster.assets.labels.asset import announce_labels
    from modyn_dagster.ingestion.history import ingest_in_order
    from modyn_dagster.ingestion.sources.source import open_source

    name = spec.name
    root, label_root = platform.project.root_of(name), platform.project.label_root_of(name)
    with dagster_instance(platform.settings) as instance:
        with progress_bar(f"labels of {name}") as show:
            source = open_source(root, spec.storage_options)
            summary = ingest_in_order(
                platform.engine, platform.home, spec, source, batches, label_root, lambda done, total, _: show(done, total)
            )
        announce_labels(instance, platform, name)
    rows, waiting = sum(result.n_labels for result in summary.labels), sum(result.n_waiting for result in summary.labels)
    counts = f"{len(summary.labels)} label batches ingested, {rows} labels, {waiting} of them wait for their samples"
    say(f"{name}: {counts}, {len(summary.failed_labels)} failed")
    for key, error in summary.failed_labels:
        say(f"label batch {key} failed: {error}", err=True)
    if summary.failed_labels:
        raise click.exceptions.Exit(1)


def _status(
    name: str, batches: "Sequence[LabelBatchRow]", coverage: "LabelCoverage", waiting: "Sequence[WaitingId]"
) -> dict[str, Any]:
    from modyn_dagster.ingestion.formats.ids import shown_id

    return {
        "dataset": name,
        "label_batches": [
            {
                "batch": batch.partition_key,
                "arrival": batch.arrival,
                "state": batch.state,
                "labels": batch.n_rows,
                "known": batch.n_known,
                "waiting": batch.n_waiting,
                "known_min": batch.known_min.isoformat() if batch.known_min else None,
                "known_max": batch.known_max.isoformat() if batch.known_max else None,
                "classes": batch.label_counts,
                "findings": batch.findings,
                "paths": batch.source["paths"],
                "error": batch.error,
                "delivered_again": batch.repaired_by is not None,
            }
            for batch in batches
        ],
        "coverage_by_age": [
            {"age": share.name, "samples": share.n_samples, "labelled": share.n_labelled, "by_default": share.n_default}
            for share in coverage.by_age
        ],
        "corrections": coverage.n_corrections,
        "corrected_samples": coverage.n_corrected,
        "waiting_ids": [
            {
                "id": shown_id(row.sample_id),
                "labels": row.n_labels,
                "batch": row.partition_key,
                "known": row.first_known.isoformat(),
            }
            for row in waiting
        ],
    }


def _show(
    name: str,
    batches: "Sequence[LabelBatchRow]",
    coverage: "LabelCoverage",
    waiting: "Sequence[WaitingId]",
    n_waiting: int,
) -> None:
    from modyn_dagster.ingestion.formats.ids import shown_id
    from modyn_dagster.ingestion.labels.findings import MEANINGS
    from modyn_dagster.reporting.tables import Table

    rows = []
    for batch in batches:
        found = "; ".join(f"{found['rows']} {MEANINGS[kind]}" for kind, found in (batch.findings or {}).items())
        first, last = (f"{moment:%Y-%m-%d %H:%M}" if moment else "" for moment in (batch.known_min, batch.known_max))
        state = "failed, delivered again" if batch.repaired_by is not None else batch.state
        counts = ("" if n is None else str(n) for n in (batch.n_rows, batch.n_known, batch.n_waiting))
        rows.append((batch.partition_key, state, *counts, first, last, batch.error or found))
    header = ("label batch", "state", "labels", "known", "waiting", "from", "to", "notes")
    show_table(Table(header, tuple(rows), title=f"{name}: label batches", texts=True).rich())
    ages = tuple(
        (share.name, str(share.n_samples), str(share.n_labelled), str(share.n_default), share.text) for share in coverage.by_age
    )
    total = coverage.total
    by_default = f", {total.n_default} of them by default" if total.n_default else ""
    caption = (
        f"{total.n_labelled} of {total.n_samples} samples have a label{by_default}; {coverage.n_corrections} corrections of "
    )
    caption += f"{coverage.n_corrected} samples; {n_waiting} ids wait for their sample"
    show_table(Table(("age", "samples", "labelled", "by default", "share"), ages, caption, title=f"{name}: coverage").rich())
    if waiting:
        ids = tuple(
            (shown_id(row.sample_id), str(row.n_labels), row.partition_key, f"{row.first_known:%Y-%m-%d %H:%M}")
            for row in waiting
        )
        more = f"and {n_waiting - len(waiting)} more" if n_waiting > len(waiting) else ""
        show_table(
            Table(
                ("id", "labels", "label batch", "known at"), ids, more, title=f"{name}: ids without a sample", texts=True
            ).rich()
        )
