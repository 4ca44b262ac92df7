"""Metadata of label batches, and the checks of what was found in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from modyn_dagster.assets.metadata.batches import time_text
from modyn_dagster.assets.metadata.entries import REASON, details, table_entry

if TYPE_CHECKING:
    from modyn_dagster.catalog.labels.label_batches import LabelBatchRow
    from modyn_dagster.pipeline.checks import CheckResult
    from modyn_dagster.reporting.label_coverage import LabelCoverage

_REMEDY: Final = "Correct the file, which is then registered again as a label batch of its own. Nothing is held up by it."
#: Sample batches in the table of coverage over time: the newest.
_MOST_BATCHES: Final = 50
#: Share by which the coverage of older samples may be below that of younger ones.
_TOLERANCE: Final = 0.1


def labels_metadata(batch: LabelBatchRow, coverage: LabelCoverage | None) -> dict[str, Any]:
    """Counts, times, delays and findings of an ingested label batch; with ``coverage``, that of all samples since."""
    from modyn_dagster.ingestion.labels.findings import MEANINGS
    from modyn_dagster.reporting.tables import Table

    delays = tuple((text, f"{n:,}") for text, n in batch.delays or ())
    found = [f"{each['rows']:,} rows {MEANINGS[kind]}" for kind, each in (batch.findings or {}).items()]
    metadata: dict[str, Any] = {
        "dagster/row_count": int(batch.n_rows or 0),
        "labels": int(batch.n_rows or 0),
        "known_labels": int(batch.n_known or 0),
        "waiting_labels": int(batch.n_waiting or 0),
        "first_known": time_text(batch.known_min),
        "last_known": time_text(batch.known_max),
        "files": ", ".join(batch.source["paths"]),
        "Delays": table_entry(Table(("from sample to label", "labels"), delays)),
        "Findings": "; ".join(found) or "none",
    }
    if coverage is not None:
        ages = tuple((share.name, f"{share.n_samples:,}", f"{share.n_labelled:,}", share.text) for share in coverage.by_age)
        newest = coverage.by_batch[-_MOST_BATCHES:]
        over_time = tuple((share.name, f"{share.n_samples:,}", f"{share.n_labelled:,}", share.text) for share in newest)
        metadata["Coverage by age"] = table_entry(Table(("age", "samples", "labelled", "share"), ages))
        metadata["coverage_over_time"] = table_entry(Table(("batch", "samples", "labelled", "share"), over_time))
        metadata["coverage"] = round(coverage.total.covered, 4)
        if coverage.total.n_default:
            metadata["default_labels"] = coverage.total.n_default
        metadata["corrections"] = coverage.n_corrections
    content = {"ordinal": batch.ordinal, "arrival": batch.arrival, "findings": batch.findings, "checksums": batch.checksums}
    return metadata | details(content)


def labels_failure(key: dg.AssetKey, batch: LabelBatchRow, reason: str) -> dg.AssetObservation:
    """Event on the partition of a label batch that could not be ingested."""
    from modyn_dagster.catalog.database.failures import TRACEBACK

    content = {"ordinal": batch.ordinal, "files": list(batch.source["paths"]), "traceback": batch.source.get(TRACEBACK)}
    metadata = {"File": ", ".join(batch.source["paths"]), REASON: reason, "Remedy": _REMEDY} | details(content)
    return dg.AssetObservation(key, description=f"not ingested: {reason}", partition=batch.partition_key, metadata=metadata)


def label_checks(batch: LabelBatchRow, coverage: LabelCoverage) -> list[CheckResult]:
    """Checks of a label batch, all of them warnings: unknown ids, ids twice in a file, early times, and coverage by age."""
    from modyn_dagster.ingestion.labels.findings import EARLY, TWICE, UNKNOWN

    return [
        _none_of(batch, "ids_known", UNKNOWN),
        _none_of(batch, "ids_once", TWICE),
        _none_of(batch, "after_sample", EARLY),
        _covered(coverage),
    ]


def _none_of(batch: LabelBatchRow, name: str, kind: str) -> CheckResult:
    from modyn_dagster.ingestion.formats.ids import shown_id
    from modyn_dagster.ingestion.labels.findings import MEANINGS
    from modyn_dagster.pipeline.checks import CheckResult

    found = (batch.findings or {}).get(kind, {"rows": 0, "first": []})
    text = f"{found['rows']} of {batch.n_rows} rows {MEANINGS[kind]}"
    places = [f"{each['file']}, row {each['row']}: id {shown_id(each['id'])}" for each in found["first"]]
    return CheckResult(name, found["rows"] == 0, False, text, {"rows": found["rows"], "first": "; ".join(places)})


def _covered(coverage: LabelCoverage) -> CheckResult:
    """Check that older samples have labels at least about as often as younger ones: a gap is a label file that is missing."""
    from modyn_dagster.pipeline.checks import CheckResult

    # By default, any sample gets a label in the end: only labels that have arrived tell of a gap.
    gaps = [
        older.name for younger, older in zip(coverage.by_age, coverage.by_age[1:]) if older.arrived < younger.arrived - _TOLERANCE
    ]
    shares = ", ".join(f"{share.name}: {100 * share.arrived:.1f} %" for share in coverage.by_age)
    text = f"fewer labels at {', '.join(gaps)} than among younger samples: {shares}" if gaps else f"labelled by age: {shares}"
    return CheckResult("covered", not gaps, False, text, {"coverage": round(coverage.total.covered, 4)})
