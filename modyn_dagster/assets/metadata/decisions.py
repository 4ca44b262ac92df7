"""Metadata of decisions: those of a batch, as production measured or a replay took them, and the one behind a trigger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from modyn_dagster.assets.metadata.batches import time_text
from modyn_dagster.assets.metadata.entries import CHART, PICTURE, decision_entries, details
from modyn_dagster.catalog.decisions import DecisionRow, find_decision, list_decisions, measurements_at

if TYPE_CHECKING:
    from modyn_dagster.catalog.runs import RunRow
    from modyn_dagster.catalog.triggers import TriggerRow
    from modyn_dagster.pipeline.decide.measure_ahead import BatchMeasurements
    from modyn_dagster.pipeline.platform import Platform
    from modyn_dagster.pipeline.replay.walk import BatchReplayed

#: Decisions in one picture, in a small one, and rows in one table.
_MOST_SHOWN: Final = 500
_MOST_IN_SMALL: Final = 60
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
    """Last score, threshold and reason of a batch, its decisions as a table, and a picture of ``pictured``, if there are any."""
    from modyn_dagster.reporting.plots.decisions import scores_and_thresholds
    from modyn_dagster.reporting.plots.svg import svg_markdown

    last = decisions[-1]
    metadata: dict[str, Any] = {
        **decision_entries(last.score, last.threshold, last.reason),
        **_picture(pictured or decisions),
        "decisions": dg.MetadataValue.md(_decision_table(decisions)),
        "fired": sum(row.fire for row in decisions),
        "points": len(decisions),
    }
    if pictured:
        title = f"{run.title}: what was decided from"
        metadata[CHART] = dg.MetadataValue.md(svg_markdown(title, scores_and_thresholds(pictured, title=title)))
    return metadata | details({"run": run.title})


def trigger_picture(platform: Platform, trigger: TriggerRow) -> dict[str, Any]:
    """Small picture of the scores that led to a trigger, those of earlier triggers of its run included."""
    with platform.transaction() as conn:
        rows = list_decisions(conn, trigger.run_id, until=trigger.point, newest=_MOST_IN_SMALL)
    return _picture(rows)


def decision_details(platform: Platform, trigger: TriggerRow) -> dict[str, Any]:
    """Details of a trigger's decision and its measurements, for the last entry."""
    with platform.transaction() as conn:
        row = find_decision(conn, trigger.run_id, trigger.point)
        measured = measurements_at(conn, trigger.run_id, trigger.point)
    found: dict[str, Any] = {}
    if row is not None and row.fire and row.details:
        found["decision"] = dict(row.details)
    if measured:
        found["measured"] = {
            path: {**values, **measured[-1].details.get(path, {})} for path, values in measured[-1].values.items()
        }
    return found


def replay_metadata(event: BatchReplayed, mlflow_url: str | None) -> dict[str, Any]:
    """Metadata of a batch in a replay: what was decided on it; ``mlflow_url`` is the page of the replay in MLflow."""
    told = [f"{trigger.reason} ({trigger.state})" for trigger in event.triggers]
    last = event.decisions[-1] if event.decisions else None
    score, threshold = (None, None) if last is None else (last.score, last.threshold)
    metadata: dict[str, Any] = {
        **decision_entries(score, threshold, "; ".join(told) or "no trigger"),
        **_picture(event.decisions),
        "samples": int(event.batch.n_samples or 0),
        "first_time": time_text(event.batch.time_min),
        "last_time": time_text(event.batch.time_max),
        "triggers": len(event.triggers),
    }
    if event.failed:
        metadata["failed triggers so far"] = event.failed
    if mlflow_url is not None:
        metadata["mlflow"] = dg.MetadataValue.url(mlflow_url)
    run, keys = event.run, [trigger.partition_key for trigger in event.triggers]
    return metadata | details(
        {"run": run.title, "name": run.name or None, "seed": run.seed, "cursor": run.cursor, "triggers": dict(zip(keys, told))}
    )


def _picture(rows: Sequence[DecisionRow]) -> dict[str, Any]:
    from modyn_dagster.reporting.plots.sparklines import sparkline

    lines: Mapping[str, Sequence[float | None]] = {
        "score": [row.score for row in rows],
        "threshold": [row.threshold for row in rows],
    }
    text = sparkline(PICTURE, lines) if len(rows) > 1 else ""
    return {PICTURE: dg.MetadataValue.md(text)} if text else {}


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
    return "–" if value is None else f"{value:.4g}"
