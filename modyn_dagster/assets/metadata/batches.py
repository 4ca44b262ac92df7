"""Metadata of batches: samples, measurements and replayed decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.decisions import DecisionRow, find_decision, list_decisions, measurements_at
from modyn_dagster.keys import key_of

if TYPE_CHECKING:
    from modyn_dagster.catalog.runs import RunRow
    from modyn_dagster.catalog.triggers import TriggerRow
    from modyn_dagster.pipeline.decide.measure_ahead import BatchMeasurements
    from modyn_dagster.pipeline.platform import Platform
    from modyn_dagster.pipeline.replay.walk import BatchReplayed


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
        metadata |= _label_metadata(batch.label_counts)
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


def _label_metadata(counts: Mapping[str, int]) -> dict[str, Any]:
    from modyn_dagster.reporting.plots.sketches import labels_sketch
    from modyn_dagster.reporting.tables import Table

    total = sum(counts.values())
    rows = [(name, f"{count:,}", f"{count / total:.1%}") for name, count in counts.items()]
    return {
        "labels": dg.MetadataValue.md(Table(("label", "samples", "share"), tuple(rows)).markdown()),
        "label_histogram": dg.MetadataValue.md(labels_sketch(counts)),
    }


#: Decisions in one picture, and rows in one table.
_MOST_SHOWN: Final = 500
_MOST_ROWS: Final = 100


@dataclass
class ShownDecisions:
    """Decisions that one Dagster run has shown and the sensor has yet to commit."""

    decisions: list[DecisionRow] = field(default_factory=list)


def measurement_metadata(platform: Platform, event: BatchMeasurements, shown: ShownDecisions) -> dict[str, Any]:
    """Metadata of a batch measured in production, with a picture of the decisions so far."""
    shown.decisions += event.decisions
    with platform.transaction() as conn:
        earlier = list_decisions(conn, event.run.id, until=event.run.cursor, newest=_MOST_SHOWN)
    return decisions_metadata(event.run, event.decisions, [*earlier, *shown.decisions])


def replay_decision_metadata(platform: Platform, event: BatchReplayed) -> dict[str, Any] | None:
    """Metadata of a replayed batch; None where nothing was decided. Pictures come with triggers and at the end."""
    if not event.decisions:
        return None
    pictured: Sequence[DecisionRow] = ()
    if event.is_last or any(row.fire for row in event.decisions):
        with platform.transaction() as conn:
            pictured = list_decisions(conn, event.run.id, until=event.decisions[-1].point, newest=_MOST_SHOWN)
    return decisions_metadata(event.run, event.decisions, pictured)


def decisions_metadata(run: RunRow, decisions: Sequence[DecisionRow], pictured: Sequence[DecisionRow]) -> dict[str, Any]:
    """The decisions of one batch as a table, the last score as a number, and a picture of ``pictured``, if there are any."""
    from modyn_dagster.reporting.plots.decisions import scores_and_thresholds
    from modyn_dagster.reporting.plots.svg import svg_markdown

    last = decisions[-1]
    metadata: dict[str, Any] = {
        "run": run.title,
        "points": len(decisions),
        "fired": sum(row.fire for row in decisions),
        "reason": last.reason,
        "decisions": dg.MetadataValue.md(_decision_table(decisions)),
        **_numbers(last),
    }
    if pictured:
        title = f"{run.title}: what was decided from"
        metadata["score_and_threshold"] = dg.MetadataValue.md(svg_markdown(title, scores_and_thresholds(pictured, title=title)))
    return metadata


def decision_metadata(platform: Platform, trigger: TriggerRow) -> dict[str, Any]:
    """Metadata of a trigger's decision: its details, and its measurements."""
    with platform.transaction() as conn:
        row = find_decision(conn, trigger.run_id, trigger.point)
        measured = measurements_at(conn, trigger.run_id, trigger.point)
    metadata: dict[str, Any] = {}
    if row is not None and row.fire and row.details:
        metadata["decision"] = dg.MetadataValue.json(dict(row.details))
    if measured:
        metadata["measured"] = dg.MetadataValue.json(
            {path: {**values, **measured[-1].details.get(path, {})} for path, values in measured[-1].values.items()}
        )
    return metadata


def _numbers(row: DecisionRow) -> Mapping[str, float]:
    numbers = {"score": row.score, "threshold": row.threshold}
    return {name: value for name, value in numbers.items() if value is not None}


def _decision_table(decisions: Sequence[DecisionRow]) -> str:
    from modyn_dagster.reporting.tables import Table

    newest = decisions[-_MOST_ROWS:]
    rows = [
        (time_text(row.time), "yes" if row.fire else "no", _number(row.score), _number(row.threshold), row.reason)
        for row in newest
    ]
    left_out = len(decisions) - len(newest)
    caption = f"{left_out:,} earlier ones are left out" if left_out else ""
    return Table(("sample time", "fires", "score", "threshold", "reason"), tuple(rows), caption).markdown()


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.6g}"


def replay_metadata(event: BatchReplayed, mlflow_url: str | None) -> dict[str, Any]:
    """Metadata of a batch in a replay: its decisions; ``mlflow_url`` is the page of the replay in MLflow."""
    metadata: dict[str, Any] = {
        "run": event.run.title,
        "samples": int(event.batch.n_samples or 0),
        "first_time": time_text(event.batch.time_min),
        "last_time": time_text(event.batch.time_max),
        "triggers": len(event.triggers),
        "cursor": event.run.cursor,
        "seed": event.run.seed,
    }
    if event.run.name:
        metadata["name"] = event.run.name
    if event.triggers:
        metadata["decisions"] = dg.MetadataValue.json(
            {trigger.partition_key: f"{trigger.reason} ({trigger.state})" for trigger in event.triggers}
        )
    if mlflow_url is not None:
        metadata["mlflow"] = dg.MetadataValue.url(mlflow_url)
    return metadata
