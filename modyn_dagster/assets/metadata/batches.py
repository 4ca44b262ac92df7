"""Metadata of batches: their samples, or why they could not be ingested."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from modyn_dagster.assets.metadata.entries import REASON, details, table_entry
from modyn_dagster.keys import key_of

if TYPE_CHECKING:
    from modyn_dagster.catalog.batches import BatchRow
    from modyn_dagster.catalog.datasets import DatasetRow

_REMEDY: Final = "Correct the file, which is then registered again as a batch of its own. Other batches are not held up by it."
#: Files named in an entry; the rest are counted.
_MOST_FILES: Final = 20


def samples_metadata(batch: BatchRow, dataset: DatasetRow, n_late: int) -> dict[str, Any]:
    """Labels, counts, time span and columns of an ingested batch; ``n_late`` samples are out of order."""
    n_samples = int(batch.n_samples or 0)
    metadata: dict[str, Any] = {
        **(_labels(batch.label_counts) if batch.label_counts else {}),
        **({"Labels": "no label"} if dataset.spec.get("label") is None else {}),
        "dagster/row_count": n_samples,
        "samples": n_samples,
        "train_samples": int(batch.n_train or 0),
        "deleted_samples": batch.n_deleted,
        "late_samples": n_late,
        "first_time": time_text(batch.time_min),
        "last_time": time_text(batch.time_max),
        "files": files_text(batch),
    }
    if dataset.columns:
        columns = [dg.TableColumn(column.name, column.dtype) for column in dataset.columns]
        metadata["dagster/column_schema"] = dg.TableSchema(columns)
    return metadata | details(
        {
            "ordinal": batch.ordinal,
            "first_key": key_of(batch.ordinal, 0),
            "last_key": key_of(batch.ordinal, n_samples - 1),
            "checksum": batch.content_checksum,
            "index": batch.index_path,
            "files": list(batch.source["paths"]),
        }
    )


def failure(key: dg.AssetKey, batch: BatchRow, reason: str) -> dg.AssetObservation:
    """Event on the partition of a batch that could not be ingested: its files, the reason, and what to do."""
    from modyn_dagster.catalog.database.failures import TRACEBACK

    content = {"ordinal": batch.ordinal, "files": list(batch.source["paths"]), "traceback": batch.source.get(TRACEBACK)}
    metadata = {"File": files_text(batch), REASON: reason, "Remedy": _REMEDY} | details(content)
    return dg.AssetObservation(key, description=f"not ingested: {reason}", partition=batch.partition_key, metadata=metadata)


def time_text(moment: datetime | None) -> str:
    """A time in UTC, without the time of day where it is midnight.

    >>> time_text(datetime(1900, 7, 1, tzinfo=UTC))
    '1900-07-01'
    """
    if moment is None:
        return "–"
    naive = moment.astimezone(UTC).replace(tzinfo=None)
    return str(naive.date()) if naive == datetime(naive.year, naive.month, naive.day) else f"{naive.isoformat(' ')} UTC"


def files_text(batch: BatchRow) -> str:
    """Names of a batch's files, or of its first ones."""
    paths = list(batch.source["paths"])
    left_out = len(paths) - _MOST_FILES
    return ", ".join(paths[:_MOST_FILES]) + (f" and {left_out:,} more" if left_out > 0 else "")


def _labels(counts: Mapping[str, int]) -> dict[str, Any]:
    from modyn_dagster.reporting.plots.sketches import labels_sketch
    from modyn_dagster.reporting.plots.sparklines import sparkbars
    from modyn_dagster.reporting.tables import Table

    total = sum(counts.values())
    rows = [(name, f"{count:,}", f"{count / total:.1%}") for name, count in counts.items()]
    return {
        "Labels": dg.MetadataValue.md(sparkbars("Labels", counts)),
        "label_chart": dg.MetadataValue.md(labels_sketch(counts)),
        "label_counts": table_entry(Table(("label", "samples", "share"), tuple(rows))),
    }
