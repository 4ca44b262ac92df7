"""What a person looks at on a batch of ``<pipeline>/replay`` and on ``<dataset>/comparison``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import dagster as dg

from modyn_dagster.assets.metadata_samples import time_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from modyn_dagster.pipeline.replay import BatchWalked
    from modyn_dagster.reporting.comparison import Comparison


def walked_metadata(event: BatchWalked, mlflow_url: str | None) -> dict[str, Any]:
    """What a replay decided on one batch; ``mlflow_url`` is the page of the replay in MLflow."""
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


def comparison_metadata(comparison: Comparison) -> dict[str, Any]:
    """The table and the plots, and per pipeline its score, seconds and samples as numbers."""
    from modyn_dagster.reporting.figures import as_markdown
    from modyn_dagster.reporting.plots import comparison_over_time, costs
    from modyn_dagster.reporting.tables import comparison_table

    metadata: dict[str, Any] = {
        "comparison": dg.MetadataValue.md(comparison_table(comparison).markdown()),
        "score_over_time": dg.MetadataValue.md(as_markdown(comparison_over_time(comparison))),
        "costs": dg.MetadataValue.md(as_markdown(costs(comparison))),
        "intervals": comparison.n_intervals,
        "shared_intervals": len(comparison.shared),
    }
    for run in comparison.runs:
        metadata[f"{run.label}: triggers"] = run.summary.triggers.trained
        metadata[f"{run.label}: samples"] = run.summary.samples_trained_on
        metadata[f"{run.label}: seconds"] = run.summary.total_seconds
        if run.score is not None:
            metadata[f"{run.label}: score"] = run.score
        if run.summary.n_bytes is not None:
            metadata[f"{run.label}: bytes"] = run.summary.n_bytes
    for spread in comparison.spreads:
        if spread.score is not None:
            metadata[f"{spread.pipeline}: mean score of {len(spread.seeds)} seeds"] = spread.score.mean
            metadata[f"{spread.pipeline}: deviation of the score"] = spread.score.deviation
    return metadata


def report_images(figures: Mapping[str, Figure]) -> dict[str, Any]:
    """The report's main plots as images that stand beside the numbers."""
    from modyn_dagster.reporting.figures import as_markdown

    return {name: dg.MetadataValue.md(as_markdown(figure)) for name, figure in figures.items()}
