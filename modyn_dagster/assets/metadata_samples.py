"""What a person looks at on a partition of ``<dataset>/samples``."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.keys import key_of


def samples_metadata(batch: BatchRow, n_late: int) -> dict[str, Any]:
    """Counts, time span, labels, keys, files and checksum of an ingested batch; ``n_late`` samples are out of order."""
    n_samples = int(batch.n_samples or 0)
    metadata: dict[str, Any] = {
        "dagster/row_count": n_samples,
        "samples": n_samples,
        "train_samples": int(batch.n_train or 0),
        "deleted_samples": batch.n_deleted,
        "late_samples": n_late,
        "first_time": time_text(batch.time_min),
        "last_time": time_text(batch.time_max),
        "ordinal": batch.ordinal,
        "first_key": key_of(batch.ordinal, 0),
        "last_key": key_of(batch.ordinal, n_samples - 1),
        "checksum": str(batch.content_checksum),
        "files": dg.MetadataValue.json(list(batch.source["paths"])),
        "index": str(batch.index_path),
    }
    if batch.label_counts:
        metadata |= _labels(batch.label_counts)
    return metadata


def time_text(moment: datetime | None) -> str:
    """A time in UTC, without the time of day where it is midnight.

    >>> time_text(datetime(1900, 7, 1, tzinfo=UTC))
    '1900-07-01'
    """
    if moment is None:
        return "–"
    naive = moment.astimezone(UTC).replace(tzinfo=None)
    return str(naive.date()) if naive == datetime(naive.year, naive.month, naive.day) else f"{naive.isoformat(' ')} UTC"


def _labels(counts: Mapping[str, int]) -> dict[str, Any]:
    from modyn_dagster.reporting.figures import as_markdown
    from modyn_dagster.reporting.plots import label_histogram
    from modyn_dagster.reporting.tables import Table

    total = sum(counts.values())
    rows = [(name, f"{count:,}", f"{count / total:.1%}") for name, count in counts.items()]
    return {
        "labels": dg.MetadataValue.md(Table(("label", "samples", "share"), tuple(rows)).markdown()),
        "label_histogram": dg.MetadataValue.md(as_markdown(label_histogram(counts))),
    }
