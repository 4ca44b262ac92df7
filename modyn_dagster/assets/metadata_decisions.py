"""What a person looks at on a batch of ``<pipeline>/measurement``, and of a decision on the assets of its trigger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from modyn_dagster.assets.metadata_samples import time_text
from modyn_dagster.catalog.decisions import DecisionRow, find_decision, list_decisions
from modyn_dagster.catalog.measurements import measurements_at

if TYPE_CHECKING:
    from modyn_dagster.catalog.runs import RunRow
    from modyn_dagster.catalog.triggers import TriggerRow
    from modyn_dagster.pipeline.measuring_run import BatchMeasured
    from modyn_dagster.pipeline.platform import Platform
    from modyn_dagster.pipeline.replay import BatchWalked

#: Decisions in one picture, and rows in one table.
_MOST_SHOWN: Final = 500
_MOST_ROWS: Final = 100


@dataclass
class Shown:
    """What one Dagster run has shown of decisions that the sensor has yet to commit."""

    decisions: list[DecisionRow] = field(default_factory=list)


def measured_metadata(platform: Platform, event: BatchMeasured, shown: Shown) -> dict[str, Any]:
    """Of a batch that was measured in production, with a picture of the decisions so far."""
    shown.decisions += event.decisions
    with platform.transaction() as conn:
        earlier = list_decisions(conn, event.run.id, until=event.run.cursor, newest=_MOST_SHOWN)
    return decisions_metadata(event.run, event.decisions, [*earlier, *shown.decisions])


def replayed_metadata(platform: Platform, event: BatchWalked) -> dict[str, Any] | None:
    """Of a batch that a replay has walked; None where nothing was decided. Pictures come with triggers and in the end."""
    if not event.decisions:
        return None
    pictured: Sequence[DecisionRow] = ()
    if event.is_last or any(row.fire for row in event.decisions):
        with platform.transaction() as conn:
            pictured = list_decisions(conn, event.run.id, until=event.decisions[-1].point, newest=_MOST_SHOWN)
    return decisions_metadata(event.run, event.decisions, pictured)


def decisions_metadata(run: RunRow, decisions: Sequence[DecisionRow], pictured: Sequence[DecisionRow]) -> dict[str, Any]:
    """The decisions of one batch as a table, the last score as a number, and a picture of ``pictured``, if there are any."""
    from modyn_dagster.reporting.decision_plot import scores_and_thresholds
    from modyn_dagster.reporting.figures import as_markdown

    last = decisions[-1]
    metadata: dict[str, Any] = {
        "run": run.title,
        "points": len(decisions),
        "fired": sum(row.fire for row in decisions),
        "reason": last.reason,
        "decisions": dg.MetadataValue.md(_table(decisions)),
        **_numbers(last),
    }
    if pictured:
        title = f"{run.title}: what was decided from"
        metadata["score_and_threshold"] = dg.MetadataValue.md(as_markdown(scores_and_thresholds(pictured, title=title)))
    return metadata


def decision_metadata(platform: Platform, trigger: TriggerRow) -> dict[str, Any]:
    """Why a trigger was made: details of its decision, and what was measured for it."""
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


def _table(decisions: Sequence[DecisionRow]) -> str:
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
