"""What a person looks at of an online strategy: its state, and how full the sample is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

from modyn_dagster.catalog.training_sets import TrainingSetRow, list_fills
from modyn_dagster.spec.online import RTBSSpec

if TYPE_CHECKING:
    from modyn_dagster.pipeline.context import TriggerContext


def selection_metadata(context: TriggerContext, row: TrainingSetRow) -> dict[str, Any]:
    """Of a training set that came from an online strategy; empty for others."""
    metadata: dict[str, Any] = {}
    if "state" in row.details:
        metadata["strategy"] = dg.MetadataValue.json(dict(row.details["state"]["strategy"]))
        metadata["state_checksum"] = row.details["state"]["checksum"]
    if "skipped" in row.details:
        metadata["skipped"] = row.details["skipped"]
    if "fill" in row.details:
        metadata["fill"] = float(row.details["fill"])
        metadata["fill_over_time"] = dg.MetadataValue.md(_plot(context, row))
    return metadata


def _plot(context: TriggerContext, row: TrainingSetRow) -> str:
    from modyn_dagster.reporting.figures import as_markdown
    from modyn_dagster.reporting.fill_plot import fill_over_time

    with context.platform.transaction() as conn:
        fills = list_fills(conn, context.run.id, until=context.trigger.ordinal)
    min_fill = RTBSSpec.model_validate(row.details["state"]["strategy"]).min_fill
    title = f"{context.run.title}: is there enough fresh data to train again?"
    return as_markdown(fill_over_time(fills, min_fill=min_fill, title=title))
